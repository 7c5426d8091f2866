"""Train on texts, label new ones, and write a CSV with the reason for each label.

python label_reviews.py [TRAIN.csv NEW.csv]: TRAIN.csv has the columns text and label, NEW.csv text.
"""

import csv
import sys

import cynosure as cy

if len(sys.argv) == 3:
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    with open(sys.argv[2], newline="", encoding="utf-8") as file:
        new = [row["text"] for row in csv.DictReader(file)]
else:
    data = cy.datasets.synthetic(300)
    texts, labels = data.texts, data.labels
    new = ["a wonderful, moving film", "dull and tedious", "the camera"]

classifier = cy.HardmaxClassifier(words=10).fit(texts, labels)
with open("labels.csv", "w", newline="", encoding="utf-8") as file:
    out = csv.writer(file)
    out.writerow(["text", "label", "probability", "decided by", "different without"])
    for text in new:
        why = classifier.explain(text)
        probability = classifier.predict_proba([text]).max()
        words = [" ".join(why.enough), " ".join(why.overturn or [])]
        out.writerow([text, why.prediction, f"{probability:.3f}", *words])
        print(f"{why.prediction:9} {probability:.2f}  {text}  <- {words[0]}")
classifier.save("my_model")
print("written: labels.csv, my_model")
