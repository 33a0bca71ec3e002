"""The least that a user's file for the command holds: a small classifier, its data, and a factory."""

CLASSIFIER = """
import torch
from torch import nn
from ritz.risk import Risk

MODEL = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
with torch.no_grad():
    for index, parameter in enumerate(MODEL.parameters()):
        parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter).roll(index))
X = torch.linspace(-1, 1, 80).view(20, 4).sin()
Y = torch.arange(20) % 3

def risk():
    return Risk(MODEL, nn.CrossEntropyLoss(), [(X[:13], Y[:13]), (X[13:], Y[13:])])
"""
