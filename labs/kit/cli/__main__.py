"""`python -m labs.kit.cli`: the `labs` command where its script is not on the path."""

from labs.kit.cli import main

if __name__ == "__main__":
    main()
