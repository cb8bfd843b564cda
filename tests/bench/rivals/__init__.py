"""The same jobs done with each library; every module runs by itself and prints its figures as JSON."""
