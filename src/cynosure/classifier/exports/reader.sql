-- The decisions of a classifier that cynosure wrote as JSON, in SQL (SQLite 3.35, PostgreSQL, DuckDB).
-- Tables: plane(plane, intercept, prior, count, kappa, "left", together), kappa NULL where all is
-- read, together that of the file, for each plane;
-- ray(plane, ray, score, level, value); term(plane, term, ray, radius); found(text, term), the
-- known terms of each text, each once; texts(text). One row for each text and plane comes back.
WITH
said AS (
  SELECT f.text, t.plane, t.radius, r.ray, r.score, r.level, r.value
  FROM found f JOIN term t ON t.term = f.term JOIN ray r ON r.plane = t.plane AND r.ray = t.ray
),
levels AS (
  SELECT text, plane, level, SUM(value) AS total, SUM(value * value) AS square
  FROM said WHERE level > 0 GROUP BY text, plane, level
),
down AS (
  SELECT text, plane, level,
    SUM(total) OVER (PARTITION BY text, plane ORDER BY level DESC) AS reading,
    COALESCE(SUM(square) OVER (PARTITION BY text, plane ORDER BY level
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS unread
  FROM levels
),
ranked AS (
  SELECT text, level, reading,
    ROW_NUMBER() OVER (PARTITION BY text, level ORDER BY reading DESC) AS place,
    AVG(unread) OVER (PARTITION BY text, level) AS unread
  FROM down
),
ahead AS ( -- of a plane by itself, or of the first class of those that read together
  SELECT d.text, d.plane, d.level, ABS(d.reading) AS reading, d.unread
  FROM down d JOIN plane p ON p.plane = d.plane WHERE NOT p.together
  UNION ALL
  SELECT a.text, p.plane, a.level, (a.reading - b.reading) / SQRT(2), a.unread
  FROM ranked a JOIN ranked b ON b.text = a.text AND b.level = a.level AND b.place = 2
  JOIN plane p ON p.together WHERE a.place = 1
),
stops AS (
  SELECT d.text, d.plane, MAX(d.level) - 1 AS silent
  FROM ahead d JOIN plane p ON p.plane = d.plane
  WHERE d.reading >= p.kappa * SQRT(d.unread) GROUP BY d.text, d.plane
),
heard AS (
  SELECT s.*, s.level > COALESCE(x.silent, 0) AS is_read,
    MAX(CASE WHEN s.level > COALESCE(x.silent, 0) THEN s.radius END)
      OVER (PARTITION BY s.text, s.plane, s.ray) AS longest
  FROM said s LEFT JOIN stops x ON x.text = s.text AND x.plane = s.plane
),
sums AS (
  SELECT h.text, h.plane, COUNT(*) AS terms, SUM(CASE WHEN h.is_read THEN 1 ELSE 0 END) AS words,
    SUM(p."left" * h.score * h.radius
      + CASE WHEN h.is_read THEN (1 - p."left") * h.score * h.longest ELSE 0 END) AS total
  FROM heard h JOIN plane p ON p.plane = h.plane GROUP BY h.text, h.plane
)
SELECT t.text, p.plane, COALESCE(s.words, 0) AS words,
  CASE WHEN s.terms IS NULL THEN p.prior ELSE p.intercept + s.total / (s.terms + p.count) END AS decision
FROM texts t CROSS JOIN plane p LEFT JOIN sums s ON s.text = t.text AND s.plane = p.plane
ORDER BY t.text, p.plane;
