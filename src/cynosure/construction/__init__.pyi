from .classifying import construct_classifier as construct_classifier
from .network import ExactClassifier as ExactClassifier
