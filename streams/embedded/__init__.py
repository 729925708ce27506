"""The embedded log on rocksdict: its database, its reader and writer, and Faust's transport to it."""
