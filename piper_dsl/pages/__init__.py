"""One page a code: what it means, how to repair it, a failing file and the repaired one."""
