"""A stand-in for a user's program: the charts only carry it."""

print("$(JOB_NAME) stays as it is", 'and "quotes" do')
