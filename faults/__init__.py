"""The fault harness: it kills, fills up, damages and crowds computations, and counts what was lost or went unreported.

python -m faults                # all of it: at most an hour on two cores
python -m faults --share 0.1    # a tenth
"""
