import { describe, expect, test } from '@jest/globals';
import type { JobAnswer, WatchItem } from '../../src/backend.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import { readAccounting } from '../../src/slurm/accounting.js';
import { classifyCancel, classifyQuery, classifyStep, classifySubmission } from '../../src/slurm/classify.js';
import { TokenReader } from '../../src/slurm/identity.js';
import { firstLook, settle } from '../../src/slurm/observe.js';
import { QueueReader } from '../../src/slurm/queue.js';
import { REFUSALS } from '../../src/slurm/refusals.js';
import { commandOf, endingOf, recording, recordings, RELEASES, type Recorded } from './recorded.js';

/** What each recorded call has to be read as; the first pattern that fits `<release>/<path>` decides. */
type Expected = readonly (readonly [pattern: RegExp, verdict: string])[];

const SBATCH: Expected = [
  [/submit\/(ok|as-root)\./, 'accepted'],
  [/submit\/.*-enforce-no\./, 'accepted'],
  [/submit\/dependency-(after|afterany|aftercorr)-unknown\./, 'accepted'],
  [/submit\/dependency-.*-failed-job\./, 'accepted'],
  [/submit\/memory-per-cpu-over\./, 'accepted'],
  [/^22\.05\/submit\/(bad-dependency|deadline-too-close)\./, 'accepted'],
  [/limits\/qos-max-wall-accepted\./, 'accepted'],
  [/full\/sbatch-[123]\./, 'accepted'],
  [/fault\/(mariadbd|slurmdbd|slurmd)-.*\/sbatch\./, 'accepted'],
  [/mixed\/client-24\.11-server-26\.05-sbatch\./, 'accepted'],
  [/submit\/(ok-plain|test-only)\./, 'unreadable'],
  [/partial\/(stdout-closed|stdout-full|two-jobs-one-name)\./, 'unreadable'],
  [
    /submit\/(bad-array|bad-begin|bad-option|bad-time|gres-unknown|no-such-script|comment-too-long)\./,
    'refused INVALID_SPEC',
  ],
  [/submit\/(script-.*|stdin-empty)\./, 'refused INVALID_SPEC'],
  [/submit\/(binary-missing|no-config)/, 'unreachable'],
  [/submit\//, 'refused BACKEND_REJECTED'],
  [/limits\/.*-submit/, 'deferred'],
  [/limits\//, 'refused BACKEND_REJECTED'],
  [/full\//, 'deferred'],
  [/partial\/(killed-while-frozen|wait-killed)\./, 'timedOut'],
  [/partial\/wait-exit3\./, 'unreachable'],
  [/fault\/(slurmctld|munged)-/, 'unreachable'],
  [/mixed\//, 'unreachable'],
  [/argv\/sbatch-version/, 'unreadable'],
];

const QUERY: Expected = [
  [/query\/squeue-(unknown|vanished|vanished-all|bad-format|unknown-user)\./, 'unreachable'],
  [/query\/sacct-bad-/, 'unreachable'],
  [/argv\/.*-bad-/, 'unreachable'],
  [/submit\/no-config-/, 'unreachable'],
  [/state\/VANISHED.*\/squeue/, 'unreachable'],
  [/mixed\/client-24\.11-server-26\.05-/, 'answered'],
  [/mixed\//, 'unreachable'],
  [/fault\/.*\/after-squeue\./, 'answered'],
  [/fault\/(slurmctld|munged)-.*\/squeue/, 'unreachable'],
  [/fault\/(slurmdbd|mariadbd|munged)-.*\/sacct/, 'unreachable'],
  [/./, 'answered'],
];

const SCANCEL: Expected = [
  [/query\/scancel-(no-args|not-a-number)\./, 'unreachable'],
  [/fault\/(slurmctld|munged)-/, 'unreachable'],
  [/mixed\/client-24\.11-/, 'asked'],
  [/mixed\//, 'unreachable'],
  [/./, 'asked'],
];

const SRUN: Expected = [
  [/srun\/(ok|on-one-node|two-nodes|chdir-missing)\./, 'ended 0'],
  [/srun\/no-overlap-immediate\./, 'ended 0'],
  [/srun\/exit1\./, 'ended 1'],
  [/(srun\/|argv\/srun-)exit9\./, 'ended 9'],
  [/srun\/killed\./, 'ended by SIGKILL'],
  [/srun\/command-missing\./, 'ended 2'],
  [/srun\/(job-|node-not-in-job|too-)/, 'refused'],
  [/argv\/srun-unknown\./, 'refused'],
  [/argv\/srun(-version)?\./, 'ended 0'],
  [/fault\/(slurmctld|munged|slurmd)-/, 'unreachable'],
  [/fault\//, 'ended 0'],
];

function read(one: Recorded): string {
  const ending = endingOf(one);
  switch (commandOf(one)) {
    case 'sbatch': {
      const reply = classifySubmission(ending);
      return reply.kind === 'refused' ? `refused ${reply.reason}` : reply.kind;
    }
    case 'squeue':
    case 'sacct':
    case 'scontrol':
      return classifyQuery(commandOf(one), ending).kind;
    case 'scancel':
      return classifyCancel(ending).kind;
    case 'srun': {
      const reply = classifyStep(ending);
      if (reply.kind !== 'ended') return reply.kind;
      return reply.signal === null ? `ended ${String(reply.exitCode)}` : `ended by ${reply.signal}`;
    }
    default:
      return 'not a command of ours';
  }
}

const TABLES: Readonly<Record<string, Expected>> = {
  sbatch: SBATCH,
  squeue: QUERY,
  sacct: QUERY,
  scontrol: QUERY,
  scancel: SCANCEL,
  srun: SRUN,
};

describe.each(RELEASES)('what Slurm %s was recorded to say', (release) => {
  test.each(recordings(release).map((one) => [one.path, one] as const))('%s is read as what it is', (path, one) => {
    const expected = TABLES[commandOf(one)]?.find(([pattern]) => pattern.test(`${release}/${path}`))?.[1];
    expect(expected).toBeDefined();
    expect(read(one)).toBe(expected);
  });
});

test.each(REFUSALS.map((row) => [row.line, row] as const))(
  'the refusal "%s" has the recording it names',
  (_line, row) => {
    const shown = RELEASES.flatMap((release) => recordings(release).filter((one) => one.path === row.recording));
    expect(shown.length).toBeGreaterThan(0);
    const said = shown.filter((one) => one.stderr.trimEnd().endsWith(row.line));
    expect(said.length).toBeGreaterThan(0);
    for (const one of said) {
      expect(read(one)).toBe(
        row.verdict === 'policy' || row.verdict === 'deferred' ? 'deferred' : `refused ${row.verdict}`,
      );
    }
  },
);

test('P01, P08: a timeout with exit 1, and any text that is not known, may have landed (INV-8)', () => {
  const frozen = classifySubmission(endingOf(recording('22.05', 'fault/slurmctld-freeze/sbatch.json')));
  expect(frozen).toMatchObject({ kind: 'unreachable', hint: null });
  // The job that it submitted nevertheless:
  expect(recording('22.05', 'fault/slurmctld-freeze/after-squeue.json').stdout).toContain('|fault-slurmctld-freeze|');
});

test('P10: a limit on submitting is named and means later', () => {
  expect(classifySubmission(endingOf(recording('22.05', 'limits/qos-max-submit-per-account.json')))).toMatchObject({
    kind: 'deferred',
    limit: 'MaxSubmitJobsPerAccount',
  });
});

test('an id that was printed before a call went wrong is a hint', () => {
  expect(classifySubmission(endingOf(recording('22.05', 'partial/wait-exit3.json')))).toMatchObject({ hint: '22' });
  expect(classifySubmission(endingOf(recording('22.05', 'partial/wait-killed.json')))).toMatchObject({ hint: '23' });
});

const TOKEN = Token.parse('01h00000000000000000000000');
const NAME = `oc-${TOKEN}`;
const US = '\u001f';

/** What the job of each `state/` folder is: phase, then reason or why it waits, `!` for a warning. */
const STATES: readonly (readonly [pattern: RegExp, answer: string])[] = [
  // Our jobs are neither arrays nor several in one: such an id is not ours, and nothing is concluded.
  [/^(ARRAY|HET)-/, 'unanswered'],
  [/^CANCELLED-|^REQUEUED-cancelled$|^prolog-slurmctld-fails$/, 'Cancelled ADMIN_CANCELLED'],
  [/^COMPLETED-with-steps$|^OUT_OF_MEMORY-cgroup-step$|^OVER_MEMORY_KILL-step$/, 'Completed !'],
  [/^COMPLETED|^chdir-missing$|^VANISHED/, 'Completed'],
  [/^GETENV-hang-15s$/, 'Running'],
  [/^COMPLETING$/, 'Running ending'],
  [/^DEADLINE$|^TIMEOUT/, 'Failed TIME_LIMIT_EXCEEDED'],
  [/^DEADLINE-before$|^CONFIGURING$|^NODE_FAIL-requeued$|^REQUEUED-pending$/, 'Pending queued'],
  [/^FAILED-(exit|while)/, 'Failed EXIT_NONZERO'],
  [/^FAILED-sigsegv$|^OVER_MEMORY_KILL$/, 'Failed SIGNALED'],
  [/^FAILED-output-dir-missing$/, 'Failed BOOTSTRAP_FAILED'],
  [/^OUT_OF_MEMORY-cgroup$/, 'Failed OUT_OF_MEMORY'],
  [/^NODE_FAIL$/, 'Lost NODE_FAILED'],
  [/^PREEMPTED$/, 'Lost PREEMPTED'],
  [/^PENDING-(DependencyNeverSatisfied|PartitionTimeLimit)$/, 'Pending never'],
  [/^PENDING-(JobHeld|PartitionNodeLimit)|^REQUEUE_HOLD$|^SPECIAL_EXIT$|^prolog-fails-requeued$/, 'Pending held'],
  [/^PENDING-/, 'Pending queued'],
  [/^RUNNING$|^SUSPENDED$|^REQUEUED-running-again$|^NAME-/, 'Running'],
];

const epoch = (text: string): string => (/^\d{4}-/.test(text) ? String(Date.parse(`${text}Z`) / 1000) : text);

/** The recorded columns, put into the form that this version asks for, with our name on the job. */
function inOurForm(folder: readonly Recorded[]) {
  const find = (name: string) => folder.find((one) => one.path.endsWith(`/${name}.json`));
  const accounts = (find('sacct')?.stdout ?? '')
    .split('\n')
    .map((line) => line.split('|'))
    .filter((fields) => fields.length === 18 && !(fields[0] ?? '').includes('.'));
  const submitted = epoch(accounts[0]?.[8] ?? '2026-11-29T13:00:00');
  const queue = (find('squeue-all-states')?.stdout ?? '')
    .split('\n')
    .map((line) => /^([^|]+)\|([A-Z_]+)\|.*\|([^|]*)\|([^|]*)\|[0-9:-]+\|[0-9:-]+\|science$/.exec(line))
    .flatMap((match) => (match === null ? [] : [match]))
    .map(([, id, state, reason, nodes]) => [id, state, submitted, 'N/A', nodes, reason, NAME, NAME].join(US));
  return {
    queue: queue.map((line) => `${line}\n`).join(''),
    accounts: accounts
      .map((f) => [
        f[0],
        f[3],
        f[4],
        f[5],
        epoch(f[8] ?? ''),
        epoch(f[9] ?? ''),
        epoch(f[10] ?? ''),
        '10',
        f[14],
        f[13],
        'test',
        NAME,
        f[7],
      ])
      .map((fields) => `${fields.join(US)}\n`)
      .join(''),
    id: (queue[0]?.split(US)[0] ?? accounts[0]?.[0] ?? '').replace(/[_+].*/, ''),
  };
}

function answerTo(folder: readonly Recorded[], handle: boolean): string {
  const { queue, accounts, id } = inOurForm(folder);
  const item: WatchItem = {
    jobId: JobId.parse('job_01h00000000000000000000000'),
    token: TOKEN,
    handle: handle ? { id, cluster: null, submittedAtMs: Date.parse('2026-11-29T13:00:00Z') } : null,
    sinceMs: Date.parse('2026-11-29T13:00:00Z'),
  };
  const tokens = new TokenReader('oc');
  const snapshot = new QueueReader(tokens, null).read(queue);
  const look = { homeCluster: null, nowMs: 0, oddities: new Set<string>() };
  const { answers, open } = firstLook([item], [{ cluster: null, kind: 'answered', snapshot }], look);
  const [left] = open;
  const view = { kind: 'answered', snapshot: readAccounting(accounts, tokens) } as const;
  return shown(left === undefined ? answers.get(item.jobId) : settle(left, new Map([[null, view]]), look));
}

function shown(answer: JobAnswer | undefined): string {
  if (answer?.kind !== 'seen') return answer?.kind ?? 'nothing';
  const { state, warnings } = answer;
  const more =
    state.phase === 'Pending'
      ? state.waiting
      : state.phase === 'Running'
        ? state.ending
          ? 'ending'
          : ''
        : state.phase === 'Completed'
          ? ''
          : state.reason;
  return [state.phase, more, warnings.length > 0 ? '!' : ''].filter((word) => word !== '').join(' ');
}

describe.each(RELEASES)('the states of Slurm %s', (release) => {
  const all = recordings(release).filter((one) => one.path.startsWith('state/'));
  // A newline in a name makes two lines of one recorded row; what that does to a parser is in parsers.test.ts.
  const folders = [...new Set(all.map((one) => one.path.split('/')[1] ?? ''))].filter(
    (name) => name !== 'NAME-with-newline',
  );
  test.each(folders)('%s is read as what it is, also when it is looked up by its token', (name) => {
    const folder = all.filter((one) => one.path.split('/')[1] === name);
    // A login environment that cannot be loaded: 25.05 and later hold the job, older ones run it with what they have.
    const getenv = release === '26.05' ? 'Pending held' : 'Completed';
    const expected =
      STATES.find(([pattern]) => pattern.test(name))?.[1] ?? (name.startsWith('GETENV-') ? getenv : undefined);
    expect(expected).toBeDefined();
    expect(answerTo(folder, true)).toBe(expected);
    expect(answerTo(folder, false)).toBe(expected);
  });
});
