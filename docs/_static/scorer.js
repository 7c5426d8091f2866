// What a search shows first: pages for newcomers before reference, reference before lists.
const SHELVES = [
  [/^start\//, 14], [/^tutorials\//, 10], [/^how-to\//, 9], [/^extending/, 9], [/^theory\/glossary/, 8],
  [/^explanation\//, 6], [/^papers/, 5], [/^gallery/, 4], [/^reference\/python\//, 3],
  [/^(community\/changelog|community\/contributing|reference\/claims|theory\/papers)/, -6],
];

var Scorer = {
  score: (result) => {
    const [page, title, , , score] = result;
    const shelf = SHELVES.find(([place]) => place.test(page));
    const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().match(/\p{L}+/gu) || [];
    const named = words.length > 1 && words.every((word) => title.toLowerCase().includes(word));
    return score + (shelf ? shelf[1] : 0) + (named ? 20 : 0);
  },
  objNameMatch: 30,  // `simulate` is the function before it is a word
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
