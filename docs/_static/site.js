// Pages opened from the disk may not read other pages or modules: search shows titles without excerpts there, and the page
// to play with is not offered.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  addEventListener("DOMContentLoaded", () => document.querySelector('a[href="_static/play/index.html"]')?.remove());
}
