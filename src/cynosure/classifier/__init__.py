"""The hardmax classifier of texts, whose computation is its explanation.

`datasets` reads labelled texts and `text` turns them into terms; `plane` places them and says how
far a text is read, `model` runs hardmax layers on their tokens and decides; `placement` (with the
convex fits of `fitting` and the grades of `grading`) and `training` (through the softmax layers of
`soft_model`) are two ways to fit a model; `estimator` is the scikit-learn class, `opened` the same
model only to be read. `explanation` says why a text got its label (`clusters`, `striking`, `view`),
`deletions` tests explanations, `evaluation` measures a classifier, `card` puts it on a page;
`shipped` opens the models that come with the package. `bulk` labels files of texts, with the
words that decided, which `deciding` finds for many at once.
"""
