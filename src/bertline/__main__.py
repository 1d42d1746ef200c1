"""`python -m bertline`, which is the command `bertline`."""

from bertline.cli.main import main

if __name__ == "__main__":
    main()
