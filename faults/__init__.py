"""The fault harness: what is killed, filled up, damaged or called all at once, and whether anything was lost or silent.

python -m faults                # all of it: at most an hour on two cores
python -m faults --share 0.1    # a tenth
"""
