#!/usr/bin/env python3
"""Jobs without devices: which deadline ends them, and what is said of that."""
import types
import unittest

import jobs

ARGS = types.SimpleNamespace(modules='', rank='sh')


def job(*scripts):
    """Rank i runs script i."""
    cases = ' '.join(f'{rank}) {script};;' for rank, script in enumerate(scripts))
    return jobs.Job(ARGS, ['-c', f'case $RANK in {cases} esac'], size=len(scripts))


class Deadlines(unittest.TestCase):
    def test_ranks_that_go_on_are_not_killed_however_slow(self):
        results = job('for i in 1 2 3 4 5 6 7 8 9; do echo step $i; sleep 0.5; done', 'sleep 5; echo last').end(deadline=3)
        self.assertEqual([status for status, _ in results], [0, 0])
        self.assertTrue(results[0][1].endswith('step 9'))
        self.assertEqual(results[1][1], 'last')

    def test_the_deadline_comes_before_what_the_others_say_of_it(self):
        results = job('echo rank 1 is gone; exit 3', 'echo first half; exec sleep 1000').end(deadline=1)
        with self.assertRaises(AssertionError) as raised:
            jobs.all_pass(results)
        said = str(raised.exception)
        self.assertTrue(said.startswith('rank 1: deadline: no rank said anything for 1 s, and it was killed; it had said: first half; '), said)
        self.assertTrue(said.endswith('rank 0: status 3: rank 1 is gone'), said)

    def test_what_was_waited_for_is_not_kept(self):
        ranks = job('echo pid; echo rest', 'echo early; echo pid')
        ranks.wait_for('pid')
        self.assertEqual(ranks.end(deadline=60), [(0, 'rest'), (0, '')])

    def test_what_was_said_instead_of_what_was_waited_for_is_told(self):
        said = self.waits_in_vain('echo no device; exit 3', 'echo pid; echo rank 0 is gone; exit 3')
        self.assertEqual(said, 'rank 0 has not said "pid": rank 0: status 3: no device; rank 1: status 3: pid\nrank 0 is gone')

    def test_a_rank_that_does_not_say_it_is_not_waited_for_for_ever(self):
        said = self.waits_in_vain('echo pid; echo going', 'echo half way; exec sleep 1000')
        self.assertEqual(said, 'rank 1 has not said "pid": rank 1: deadline: no rank said anything for 1 s, and it was killed; it had said: half way; '
                               'rank 0: status 0: going')

    def waits_in_vain(self, *scripts):
        with self.assertRaises(AssertionError) as raised:
            job(*scripts).wait_for('pid', deadline=1)
        return str(raised.exception)


if __name__ == '__main__':
    unittest.main()
