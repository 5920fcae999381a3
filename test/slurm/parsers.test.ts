import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Token } from '../../src/machines/vocabulary.js';
import { chunks, readAccounting } from '../../src/slurm/accounting.js';
import { failureFromExitCode, failureFromReason, parseExitCode, stepWarnings } from '../../src/slurm/failure.js';
import { jobName, TokenReader } from '../../src/slurm/identity.js';
import { hintFrom, parsePrintedId } from '../../src/slurm/job-id.js';
import { epochMs, QueueReader } from '../../src/slurm/queue.js';
import { waitingFor } from '../../src/slurm/reasons.js';
import { isLive, meaningOf, parseState, SLURM_STATES, STATES } from '../../src/slurm/states.js';
import { parseConfig } from '../../src/slurm/self-test.js';

const US = '\u001f';
const tokens = new TokenReader('oc');
const tokenOf = (n: number): Token => Token.parse(`01${String(n).padStart(24, '0')}`);
const name = (n: number): string => jobName('oc', tokenOf(n));
const queueLine = (id: number, state = 'RUNNING'): string =>
  [id, state, '1795969001', 'N/A', 'n1', 'None', name(id), name(id)].join(US);
const accountLine = (id: number, state = 'COMPLETED'): string =>
  [id, state, '0:0', '0:0', '1795969001', '1795969002', '1795969003', '10', 'cpu', 'n1', 'test', name(id), ''].join(US);

/** Any text without our token in it: bytes that were not UTF-8 have been read as U+FFFD by then. */
const junk = fc.string({ unit: 'binary', maxLength: 200 });
const separators = fc.constantFrom(US, '|', '\n', '\0', ' ', '\u001e', ';', '\ufffd', '\r');
const rowLike = fc.array(fc.oneof(junk, separators, fc.constantFrom('1', 'RUNNING', 'COMPLETED', '0:0')), {
  maxLength: 30,
});
const hostile = fc.oneof(
  junk,
  rowLike.map((parts) => parts.join('')),
);

describe('the printed job id', () => {
  test.each([
    ['3149172\n', { kind: 'one', id: '3149172', cluster: null }],
    ['3969755;nautilus\n', { kind: 'one', id: '3969755', cluster: 'nautilus' }],
    ['memory advice: that much\nplease read on\n38139957\n', { kind: 'one', id: '38139957', cluster: null }],
    ['38139957\nyour balance will be 7\n', { kind: 'one', id: '38139957', cluster: null }],
  ])('P02, P04, P06: %j is a job', (stdout, expected) => {
    expect(parsePrintedId(stdout)).toEqual(expected);
  });

  test.each([
    '',
    '\n',
    '12',
    'Submitted batch job 12\n',
    '12 \n',
    '-12\n',
    '012\n',
    '0\n',
    '12;\n',
    '12;a b\n',
    '1e5\n',
  ])('P04, P07: %j is not an id (INV-8)', (stdout) => {
    expect(parsePrintedId(stdout).kind).toBe('none');
    expect(hintFrom(stdout)).toBeNull();
  });

  test('P04: two ids are none, not even a hint (INV-8)', () => {
    expect(parsePrintedId('12\n13\n')).toEqual({ kind: 'several' });
    expect(hintFrom('12\n13\n')).toBeNull();
  });

  test('any bytes: no throw, and an id only where a whole line is one', () => {
    fc.assert(
      fc.property(hostile, (stdout) => {
        const printed = parsePrintedId(stdout);
        if (printed.kind === 'one') {
          const { id, cluster } = printed;
          expect(stdout.split('\n')).toContain(cluster === null ? id : `${id};${cluster}`);
        }
      }),
    );
  });

  test('an answer that is cut anywhere never gives another id than the whole one (INV-8)', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 67_108_863 }), fc.integer({ min: 0, max: 12 }), (id, length) => {
        const cut = parsePrintedId(`${String(id)}\n`.slice(0, length));
        if (cut.kind === 'one') expect(cut.id).toBe(String(id));
      }),
    );
  });
});

describe('states', () => {
  test.each(SLURM_STATES)('P41: %s is read as itself, with a suffix too, and has a meaning', (state) => {
    for (const text of [state, `${state}+`, `${state} by 1001`, `${state} by 4294967294`]) {
      expect(parseState(text)).toBe(state);
    }
    expect(['Pending', 'Running', 'Completed', 'Failed', 'Cancelled', 'Lost', 'look']).toContain(
      meaningOf(state).phase,
    );
  });

  test('short codes are unique', () => {
    const codes = Object.values(STATES).flatMap(({ code }) => code ?? []);
    expect(new Set(codes).size).toBe(codes.length);
  });

  test.each([
    'OUT_OF_ME+',
    'FUTURE_STATE',
    'CANCEL',
    '',
    ' RUNNING',
    'running',
    'RUNNING?',
    'CANCELLED by',
    'constructor',
  ])('P37, P38, P41: %j is unknown, never a guess', (text) => {
    expect(parseState(text)).toBeUndefined();
  });

  test('P42: COMPLETING is still running; P40: TIMEOUT failed whatever the exit code says', () => {
    expect(meaningOf('COMPLETING')).toEqual({ phase: 'Running', ending: true });
    expect(meaningOf('TIMEOUT')).toEqual({ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' });
    expect(isLive('REVOKED')).toBe(true);
  });

  test('any text: no throw, and only a known word has a meaning', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        const state = parseState(text);
        if (state !== undefined) expect(text.startsWith(state)).toBe(true);
      }),
    );
  });
});

describe('why a job waits', () => {
  test.each([
    ['Priority', 'queued'],
    ['Resources', 'queued'],
    ['ReqNodeNotAvail, UnavailableNodes:n2', 'queued'],
    ['ReqNodeNotAvail, May be reserved for other job', 'queued'],
    ['Reservation', 'queued'],
    ['QOSMaxJobsPerUserLimit', 'queued'],
    ['AssocGrpCpuLimit', 'queued'],
    ['Something new', 'queued'],
    ['JobHeldUser', 'held'],
    ['JobHeldAdmin', 'held'],
    ['launch failed requeued held', 'held'],
    ['user env retrieval failed requeued held', 'held'],
    ['job requeued in held state', 'held'],
    ['DependencyNeverSatisfied', 'never'],
    ['BadConstraints', 'never'],
    ['QOSMaxWallDurationPerJobLimit', 'never'],
    ['QOSMaxMemoryPerJob', 'never'],
    ['AssocMaxNodePerJobLimit', 'never'],
    ['QOSMaxCpuPerNode', 'never'],
    ['QOSMinCpuNotSatisfied', 'never'],
    ['QOSMaxCpuPerUserLimit', 'queued'],
  ])('P47, P48, P49: %s is %s', (reason, waiting) => {
    expect(waitingFor(reason)).toBe(waiting);
  });
});

describe('how a job failed', () => {
  test.each([
    ['3:0', 'EXIT_NONZERO'],
    ['72:0', 'EXIT_NONZERO'],
    ['200:0', 'EXIT_NONZERO'],
    ['0:11', 'SIGNALED'],
    ['0:9', 'SIGNALED'],
    ['0:53', 'BOOTSTRAP_FAILED'],
    ['0:54', 'BOOTSTRAP_FAILED'],
    ['0:125', 'OUT_OF_MEMORY'],
    ['0:0', 'BOOTSTRAP_FAILED'],
    ['121:0', 'BOOTSTRAP_FAILED'],
    ['122:0', 'DUPLICATE'],
  ])('P11: exit code %s is %s', (text, reason) => {
    const exit = parseExitCode(text);
    expect(exit).not.toBeNull();
    if (exit !== null) expect(failureFromExitCode(exit).state).toEqual({ phase: 'Failed', reason });
  });

  test.each(['', '3', ':', '3:', 'x:0', '3:0:0', '-1:0', '3:0\n'])('%j is not an exit code', (text) => {
    expect(parseExitCode(text)).toBeNull();
  });

  test.each([
    ['NonZeroExitCode', 'EXIT_NONZERO'],
    ['RaisedSignal:11(Segmentation fault)', 'SIGNALED'],
    ['RaisedSignal:53(Real-time signal 19)', 'BOOTSTRAP_FAILED'],
    ['JobLaunchFailure', 'BOOTSTRAP_FAILED'],
    ['OutOfMemory', 'OUT_OF_MEMORY'],
    ['anything else', 'EXIT_NONZERO'],
  ])('P20: where accounting is off, the reason %s is %s', (text, reason) => {
    expect(failureFromReason(text).state).toEqual({ phase: 'Failed', reason });
  });

  test('P39: a step that ran out of memory warns beside a completed job', () => {
    expect(stepWarnings(parseExitCode('0:125'))).toHaveLength(1);
    expect(stepWarnings(parseExitCode('7:0'))[0]).toContain('exit code 7');
    expect(stepWarnings(parseExitCode('0:0'))).toEqual([]);
    expect(stepWarnings(null)).toEqual([]);
  });
});

describe('times', () => {
  test.each(['', 'Unknown', 'None', 'N/A', 'NONE', '0', '2026-11-29T13:00:00', '-5', '1e9', '99999999999999'])(
    'P35, P50: %j is no time',
    (text) => {
      expect(epochMs(text)).toBeNull();
    },
  );
  test('seconds become milliseconds', () => {
    expect(epochMs('1795969001')).toBe(1_795_969_001_000);
  });
});

describe('rows', () => {
  test('P32, P33: a row that cannot be read spoils no other one, whatever is in it (INV-10)', () => {
    fc.assert(
      fc.property(hostile, hostile, (before, after) => {
        const queue = new QueueReader(tokens, null).read(`${before}\n${queueLine(7)}\n${after}\n`);
        // A junk line may carry the very id 7 and so make it ambiguous; then nothing is said about it.
        if (!queue.garbled.has(tokenOf(7))) {
          expect(queue.byToken.get(tokenOf(7))?.map((row) => [row.id, row.state])).toEqual([['7', 'RUNNING']]);
        }
        expect([...queue.byToken.keys()].filter((token) => token !== tokenOf(7))).toEqual([]);
        const accounts = readAccounting(`${before}\n${accountLine(7)}\n${after}\n`, tokens);
        expect(accounts.byToken.get(tokenOf(7))?.map((row) => [row.id, row.state])).toEqual([['7', 'COMPLETED']]);
      }),
      { numRuns: 300 },
    );
  });

  test('one reader over many answers says what a new one would say about the last', () => {
    const state = fc.constantFrom('PENDING', 'RUNNING', 'COMPLETED', 'FUTURE_STATE');
    const answer = fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), state), { maxLength: 8 });
    fc.assert(
      fc.property(fc.array(answer, { minLength: 1, maxLength: 6 }), (answers) => {
        const reader = new QueueReader(tokens, null);
        let last = reader.read('');
        let fresh = last;
        for (const rows of answers) {
          const text = rows.map(([id, word]) => `${queueLine(id, word)}\n`).join('');
          last = reader.read(text);
          fresh = new QueueReader(tokens, null).read(text);
        }
        const plain = (snapshot: typeof last) =>
          [...snapshot.byToken]
            .map(([token, rows]) => [token, rows.map(({ id, stateText }) => [id, stateText])])
            .sort();
        expect(plain(last)).toEqual(plain(fresh));
        expect([...last.garbled].sort()).toEqual([...fresh.garbled].sort());
      }),
    );
  });

  test('a row that turns odd is reported once, and makes its job unreadable, not absent', () => {
    const reader = new QueueReader(tokens, null);
    expect(reader.read(`${queueLine(1)}\n`).oddities).toEqual([]);
    const odd = reader.read(`${queueLine(1, 'FUTURE_STATE')}\n`);
    expect(odd.oddities).toHaveLength(1);
    expect(odd.oddities[0]).toContain('FUTURE_STATE');
    expect(odd.garbled.has(tokenOf(1))).toBe(true);
    expect(reader.read(`${queueLine(1, 'FUTURE_STATE')}\n`)).toMatchObject({ oddities: [], byToken: new Map() });
    expect(reader.read(`${queueLine(1)}\n`).garbled.size).toBe(0);
  });

  test.each(['92_[4-5%2]', '92_5', '100+0', '', '12.batch', '99999999999999'])(
    'P27: our name on the id %j is nobody of ours',
    (id) => {
      const line = queueLine(1).replace(/^1/, id);
      const snapshot = new QueueReader(tokens, null).read(`${line}\n`);
      expect(snapshot.byToken.size).toBe(0);
      expect(snapshot.garbled.has(tokenOf(1))).toBe(true);
    },
  );

  test('several rows with one id say nothing about any job in them, and are reported once (INV-13)', () => {
    const forged = [2, 3].map((n) => queueLine(n, 'COMPLETED').replace(/^./, '1'));
    const text = [queueLine(1), ...forged, ''].join('\n');
    const reader = new QueueReader(tokens, null);
    const snapshot = reader.read(text);
    expect(snapshot.byToken.size).toBe(0);
    expect([...snapshot.garbled].sort()).toEqual([1, 2, 3].map(tokenOf));
    expect(snapshot.oddities).toHaveLength(1);
    expect(reader.read(text).oddities).toEqual([]);
    expect([...reader.read(text).garbled].sort()).toEqual([1, 2, 3].map(tokenOf));
  });

  test('a job is ours by its name, or by its comment if it was renamed, never against its name (INV-13)', () => {
    expect(tokens.of(name(1), '(null)')).toBe(tokenOf(1));
    expect(tokens.of('renamed', name(1))).toBe(tokenOf(1));
    expect(tokens.of(name(2), name(1))).toBe(tokenOf(2));
    expect(tokens.of(`x${name(1)}`, `${name(1)}x`)).toBeNull();
    expect(new TokenReader('o.').of(name(1), '')).toBeNull();
  });

  test('P22: a fresh row that is half made proves nothing yet', () => {
    const half = [
      '10',
      'PENDING',
      '0:0',
      '0:0',
      '1795969001',
      '1795969001',
      'Unknown',
      '',
      '',
      'n2',
      'test',
      'allocation',
      '',
    ];
    const snapshot = readAccounting(`${half.join(US)}\n`, tokens);
    expect([...snapshot.halfMade]).toEqual(['10']);
    expect(snapshot.byToken.size).toBe(0);
  });
});

test('P28: a question is split where one argument could not hold it, and nothing is left out', () => {
  const ids = Array.from({ length: 5_000 }, (_, index) => String(60_000_000 + index));
  const parts = chunks(ids, 10_000);
  expect(parts.flat()).toEqual(ids);
  for (const part of parts) expect(part.join(',').length).toBeLessThanOrEqual(10_000);
  expect(parts.length).toBeLessThan(6);
});

test('the configuration is read line by line, whatever else is in it', () => {
  const config = parseConfig(
    'Configuration data as of now\nClusterName             = lab\nX= 1\nMessageTimeout = 10 sec\n',
  );
  expect([...config]).toEqual([
    ['ClusterName', 'lab'],
    ['MessageTimeout', '10 sec'],
  ]);
});
