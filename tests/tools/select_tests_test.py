"""However the tests are dealt out, all parts together are all of them, and each has what is never dealt out.

usage: select_tests_test.py SELECT_TESTS
"""
import argparse
import importlib.util
import sys
import unittest

TESTS = [{'suite': [f'heddle:{suite}'], 'name': f'{suite}-{i}'} for suite, count in (('base', 3), ('jobs', 11), ('gpu', 7)) for i in range(count)]


def names(k=0, n=1, pattern='.', suite='', always='(?!)'):
    args = argparse.Namespace(part=(k, n), pattern=pattern, suite=suite, always=always)
    return [test['name'] for test in select_tests.wanted(TESTS, args)]


class Dealing(unittest.TestCase):
    def test_one_part_is_all(self):
        self.assertEqual(names(), [test['name'] for test in TESTS])

    def test_parts_share_out_everything_evenly(self):
        for n in range(1, 25):
            parts = [names(k, n, always='^base ') for k in range(n)]
            for part in parts:
                self.assertEqual(part[:3], ['base-0', 'base-1', 'base-2'])
            dealt = [name for part in parts for name in part[3:]]
            self.assertCountEqual(dealt, names()[3:])
            lengths = {len(part) for part in parts}
            self.assertLessEqual(max(lengths) - min(lengths), 1, n)

    def test_of_a_suite_and_a_pattern(self):
        self.assertEqual(names(suite='gpu'), [f'gpu-{i}' for i in range(7)])
        self.assertEqual(names(pattern='^(?!jobs )'), [f'base-{i}' for i in range(3)] + [f'gpu-{i}' for i in range(7)])

    def test_a_part_that_there_is_none_of_is_refused(self):
        self.assertEqual(select_tests.part('3/4'), (3, 4))
        for text in ('4/4', '-1/4', '1', '1/0', 'a/b', ''):
            with self.assertRaises(argparse.ArgumentTypeError):
                select_tests.part(text)


if __name__ == '__main__':
    spec = importlib.util.spec_from_file_location('select_tests', sys.argv.pop())
    select_tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(select_tests)
    unittest.main()
