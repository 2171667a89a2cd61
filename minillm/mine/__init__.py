"""Running parts that somebody else wrote, above all the answers to the labs: `--mine`."""
