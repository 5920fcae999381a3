import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { initialTransition, transition } from 'xstate';
import { readEvent } from '../../src/events/schemas.js';
import { IllegalEventError } from '../../src/machines/job-aggregate.js';
import {
  canSessionTake,
  evolveSession,
  foldSession,
  sessionContextOf,
  sessionStateOf,
  type Session,
} from '../../src/machines/session-aggregate.js';
import { SESSION_STATES, type SessionMachineEvent, type SessionState } from '../../src/machines/session-events.js';
import {
  expiredClock,
  idleEndsAtMs,
  isReady,
  lifetimeEndsAtMs,
  readinessOf,
  readinessWords,
} from '../../src/machines/session-rules.js';
import { sessionMachine } from '../../src/machines/session.js';
import { STEPS_KEPT } from '../../src/machines/session-context.js';
import {
  activity,
  answered,
  assigned,
  ended,
  ending,
  granted,
  interrupted,
  left,
  prepared,
  READY,
  registered,
  requested,
  sessionAfter,
  stepCancel,
  stepEnded,
  stepRequested,
  withdrawn,
} from '../support/session-events.js';
import { transitionsOf, transitionsTaken } from '../support/transitions.js';

const EVENTS = {
  assigned: assigned(1),
  nextJob: assigned(2),
  granted: granted(),
  withdrawn: withdrawn(),
  prepared: prepared(),
  registered: registered(1),
  registeredOld: registered(1, 7),
  noSuchRank: registered(2),
  answered: answered(1),
  left: left(0),
  step: stepRequested(2),
  stepAgain: stepRequested(1),
  stepCancel: stepCancel(1),
  stepEnded: stepEnded(1),
  activity: activity(),
  ending: ending(),
  interrupted: interrupted(1),
  interruptedOther: interrupted(2),
  ended: ended(),
} as const satisfies Record<string, SessionMachineEvent>;
type EventName = keyof typeof EVENTS;

/** Situation → what brings a session there, and event → state (`=`: it stays). What is not named is illegal. */
const TABLE: Readonly<
  Record<string, { readonly events: readonly SessionMachineEvent[]; readonly row: Partial<Record<EventName, string>> }>
> = {
  'Waiting, without a job': {
    events: [],
    row: { assigned: '=', nextJob: '=', ending: 'Ending', ended: 'Ended' },
  },
  'Waiting for the allocation': {
    events: [assigned(), prepared()],
    row: {
      nextJob: '=',
      granted: 'Starting',
      prepared: '=',
      registered: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Waiting, though every rank is in': {
    events: [assigned(), prepared(), registered(0), registered(1), answered(0), answered(1)],
    row: {
      nextJob: '=',
      granted: 'Ready',
      prepared: '=',
      registered: '=',
      answered: '=',
      left: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Starting, one rank is in': {
    events: [assigned(), prepared(), granted(), registered(0), answered(0)],
    row: {
      withdrawn: 'Waiting',
      prepared: '=',
      registered: '=',
      left: '=',
      activity: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Starting, one agent has not answered': {
    events: READY.slice(0, -1),
    row: {
      withdrawn: 'Waiting',
      prepared: '=',
      registered: '=',
      answered: 'Ready',
      left: '=',
      activity: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Starting, only the workspace is missing': {
    events: READY.filter((event) => event.type !== 'workspace.prepared'),
    row: {
      withdrawn: 'Waiting',
      prepared: 'Ready',
      registered: '=',
      answered: '=',
      left: '=',
      activity: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Ready, with a step': {
    events: [...READY, stepRequested(1)],
    row: {
      withdrawn: 'Waiting',
      registered: 'Starting',
      left: 'Starting',
      step: '=',
      stepCancel: '=',
      stepEnded: '=',
      activity: '=',
      ending: 'Ending',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Ending, with a step': {
    events: [...READY, stepRequested(1), ending()],
    row: {
      left: '=',
      withdrawn: '=',
      stepCancel: '=',
      stepEnded: '=',
      interrupted: 'Interrupted',
      ended: 'Ended',
    },
  },
  'Interrupted, with a step': {
    events: [...READY, stepRequested(1), interrupted()],
    row: { nextJob: 'Waiting', stepCancel: '=', stepEnded: '=', ended: 'Ended' },
  },
  Ended: { events: [...READY, ending(), ended()], row: {} },
};

describe('the session machine', () => {
  for (const [situation, { events, row }] of Object.entries(TABLE)) {
    test(`${situation}: takes what its row names, and nothing else`, () => {
      const session = sessionAfter(...events);
      const got = Object.fromEntries(
        Object.entries(EVENTS).flatMap(([name, event]) => {
          if (!canSessionTake(session, event)) {
            expect(() => evolveSession(session, event)).toThrow(IllegalEventError);
            return [];
          }
          const after = sessionStateOf(evolveSession(session, event));
          return [[name, after === sessionStateOf(session) ? '=' : after]];
        }),
      );
      expect(got).toEqual(row);
    });
  }

  test('every state is in the table, and every transition of the config is taken in it', () => {
    const situations = Object.values(TABLE).map(({ events }) => sessionAfter(...events));
    expect(new Set(situations.map(sessionStateOf))).toEqual(new Set(SESSION_STATES));
    // A step goes on through what happens to its session.
    const withStep = [withdrawn(), left(0)].map((event) => sessionAfter(...READY, stepRequested(1), event));
    const taken = [...situations, ...withStep].flatMap((session) =>
      Object.values(EVENTS).flatMap((event) => transitionsTaken(session.snapshot, event)),
    );
    expect(new Set(taken)).toEqual(transitionsOf(sessionMachine));
  });

  test('INV-6 an ended session stays as it ended, whatever comes', () => {
    const over = sessionAfter(...READY, ended('Failed', 'TIME_LIMIT_EXCEEDED'));
    for (const event of Object.values(EVENTS)) expect(canSessionTake(over, event)).toBe(false);
  });

  test('INV-7 ranks of another epoch are no ranks of this session', () => {
    const session = sessionAfter(...READY, interrupted(1), assigned(2));
    for (const event of [registered(0, 1), answered(0, 1), left(0, 1)])
      expect(canSessionTake(session, event)).toBe(false);
    expect(canSessionTake(session, registered(0, 2))).toBe(true);
    expect(canSessionTake(session, assigned(1))).toBe(false);
  });
});

const anyEvent = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...READY) },
  { weight: 2, arbitrary: fc.constantFrom<SessionMachineEvent>(...Object.values(EVENTS)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(assigned(3), registered(0, 2), registered(1, 2), answered(0, 2), answered(1, 2)),
  },
);
/** A part of the way to being ready, and then anything. */
const anyLog = fc
  .tuple(fc.nat(READY.length), fc.array(anyEvent, { minLength: 5, maxLength: 60 }))
  .map(([count, events]) => [...READY.slice(0, count), ...events]);

/** The legal part of a sequence, and every session on the way. */
function live(events: readonly SessionMachineEvent[]): readonly Session[] {
  const sessions = [sessionAfter()];
  for (const event of events) {
    const last = sessions.at(-1);
    if (last !== undefined && canSessionTake(last, event)) sessions.push(evolveSession(last, event));
  }
  return sessions;
}

describe('any session', () => {
  test('INV-5 is Ready exactly when allocation, workspace, every rank and every agent are there', () => {
    const seen = new Map<SessionState, number>();
    fc.assert(
      fc.property(anyLog, (events) => {
        for (const session of live(events)) {
          const state = sessionStateOf(session);
          seen.set(state, (seen.get(state) ?? 0) + 1);
          const context = sessionContextOf(session);
          const { allocation, workspace, ranks, agent } = readinessOf(context);
          expect(isReady(context)).toBe(allocation && workspace && ranks && agent);
          if (state === 'Ready') expect(isReady(context)).toBe(true);
          if (state === 'Waiting' || state === 'Starting' || state === 'Interrupted' || state === 'Ended')
            expect([state, isReady(context)]).toEqual([state, false]);
          if (state === 'Starting') expect(allocation).toBe(true);
          if (state === 'Waiting') expect(allocation).toBe(false);
        }
      }),
      { numRuns: 400 },
    );
    for (const state of SESSION_STATES) expect([state, seen.has(state)]).toEqual([state, true]);
  });

  test("INV-12 the fast fold gives what XState's own transition gives, and the log replays to the same state", () => {
    fc.assert(
      fc.property(anyLog, (events) => {
        let [slow] = initialTransition(sessionMachine, requested());
        let session = sessionAfter();
        const log: SessionMachineEvent[] = [];
        for (const event of events) {
          const [after] = transition(sessionMachine, slow, event);
          expect([event.type, after === slow]).toEqual([event.type, !canSessionTake(session, event)]);
          if (after === slow) continue;
          slow = after;
          session = evolveSession(session, event);
          log.push(event);
          expect([session.snapshot.value, session.snapshot.context]).toEqual([slow.value, slow.context]);
        }
        const stored = JSON.parse(JSON.stringify([requested(), ...log])) as unknown[];
        const replayed = foldSession(
          stored.map((event) => readEvent(event)) as (SessionMachineEvent | ReturnType<typeof requested>)[],
        );
        expect(sessionContextOf(replayed)).toEqual(sessionContextOf(session));
        expect(replayed.version).toBe(session.version);
      }),
      { numRuns: 150 },
    );
  });

  test('a stream without its first event, or with two of it, is refused', () => {
    expect(() => foldSession([])).toThrow(IllegalEventError);
    expect(() => foldSession([assigned()])).toThrow(/before session.requested/);
    expect(() => foldSession([requested(), requested()])).toThrow(IllegalEventError);
  });
});

describe('what is missing, in words (INV-5)', () => {
  const four = (...events: readonly SessionMachineEvent[]): string =>
    readinessWords(sessionContextOf(foldSession([requested({ ranks: 4 }), ...events])));

  test.each([
    ['nothing yet', [], 'waiting for the allocation; waiting for the workspace'],
    ['a job in the queue', [assigned(), prepared()], 'waiting for the allocation'],
    ['nodes, and nobody in', [assigned(), prepared(), granted()], '0 of 4 ranks; waiting for ranks 0, 1, 2, 3'],
    [
      'one rank missing',
      [assigned(), prepared(), granted(), registered(0), registered(1), registered(3)],
      '3 of 4 ranks; waiting for rank 2',
    ],
    [
      'all in before the backend said that it runs',
      [assigned(), prepared(), ...[0, 1, 2, 3].map((rank) => registered(rank))],
      'waiting for the allocation; 4 of 4 ranks; waiting for an answer of ranks 0, 1, 2, 3',
    ],
    [
      'one agent that does not answer',
      [
        assigned(),
        prepared(),
        granted(),
        ...[0, 1, 2, 3].map((rank) => registered(rank)),
        ...[0, 1, 3].map((rank) => answered(rank)),
      ],
      '4 of 4 ranks; waiting for an answer of rank 2',
    ],
    [
      'no workspace',
      [assigned(), granted(), ...[0, 1, 2, 3].flatMap((rank) => [registered(rank), answered(rank)])],
      'waiting for the workspace',
    ],
    [
      'all',
      [assigned(), prepared(), granted(), ...[0, 1, 2, 3].flatMap((rank) => [registered(rank), answered(rank)])],
      'ready: 4 of 4 ranks',
    ],
  ] as const)('%s', (_what, events, words) => {
    expect(four(...events)).toBe(words);
  });

  test('of many ranks some are named and the others counted', () => {
    const words = readinessWords(sessionContextOf(foldSession([requested({ ranks: 1000 }), assigned(), granted()])));
    expect(words).toContain('0 of 1000 ranks; waiting for ranks 0, 1, 2, 3, 4, 5, 6, 7 and 992 more');
  });

  test('ranks that arrived are kept while others are awaited, and one that leaves makes the session not ready', () => {
    const whole = sessionAfter(...READY);
    const without = evolveSession(whole, left(0));
    expect([sessionStateOf(whole), sessionStateOf(without)]).toEqual(['Ready', 'Starting']);
    expect(sessionContextOf(without).ranksIn.map(({ rank }) => rank)).toEqual([1]);
  });
});

describe('the two clocks', () => {
  const HOUR = 3_600_000;

  test('neither runs before nodes are held: waiting in the queue costs nothing', () => {
    const context = sessionContextOf(sessionAfter(assigned(), prepared()));
    expect([idleEndsAtMs(context), lifetimeEndsAtMs(context), expiredClock(context, 1e15)]).toEqual([null, null, null]);
  });

  test('only what a user does renews the idle clock: agents that come, answer and go do not', () => {
    const grantedAt = 3_000;
    const base = idleEndsAtMs(sessionContextOf(sessionAfter(...READY)));
    expect(base).toBe(grantedAt + HOUR);
    const busyAgents = [left(0, 1, 50_000), registered(0, 1, 60_000), answered(0, 1, 60_001)];
    expect(idleEndsAtMs(sessionContextOf(sessionAfter(...READY, ...busyAgents)))).toBe(base);
    expect(idleEndsAtMs(sessionContextOf(sessionAfter(...READY, activity(70_000))))).toBe(70_000 + HOUR);
    const stepped = sessionAfter(...READY, stepRequested(1, 80_000), stepEnded(1, 90_000));
    expect(idleEndsAtMs(sessionContextOf(stepped))).toBe(90_000 + HOUR);
  });

  test('while a step of somebody runs the session is not idle; its lifetime goes on', () => {
    const context = sessionContextOf(sessionAfter(...READY, stepRequested(1)));
    expect(idleEndsAtMs(context)).toBeNull();
    expect(expiredClock(context, 3_000 + 10 * HOUR)).toBe('SESSION_MAX_LIFETIME_EXCEEDED');
    expect(expiredClock(context, 3_000 + 10 * HOUR - 1)).toBeNull();
  });

  test('the reason is the clock that ran out first', () => {
    const context = sessionContextOf(sessionAfter(...READY));
    expect(expiredClock(context, 3_000 + HOUR - 1)).toBeNull();
    expect(expiredClock(context, 3_000 + HOUR)).toBe('SESSION_IDLE_TIMEOUT');
    expect(expiredClock(context, 3_000 + 100 * HOUR)).toBe('SESSION_IDLE_TIMEOUT');
    const late = sessionContextOf(sessionAfter(...READY, activity(3_000 + 9.5 * HOUR)));
    expect(expiredClock(late, 3_000 + 100 * HOUR)).toBe('SESSION_MAX_LIFETIME_EXCEEDED');
  });

  test('a session that ends already, or has ended, runs out of nothing', () => {
    for (const events of [[ending()], [ending(), ended()]])
      expect(expiredClock(sessionContextOf(sessionAfter(...READY, ...events)), 1e15)).toBeNull();
  });

  test('its lifetime counts over all of its jobs, idleness from the newest allocation', () => {
    const context = sessionContextOf(sessionAfter(...READY, interrupted(1), assigned(2), prepared(), granted(500_000)));
    expect([lifetimeEndsAtMs(context), idleEndsAtMs(context)]).toEqual([3_000 + 10 * HOUR, 500_000 + HOUR]);
  });
});

describe('recovery', () => {
  test('a lost job leaves nothing of what it held; the next one makes a recovery, and a notice to the users', () => {
    const lost = sessionContextOf(sessionAfter(...READY, interrupted(1)));
    expect(lost).toMatchObject({
      grantedAtMs: null,
      workspace: false,
      ranksIn: [],
      lastLoss: 'NODE_FAILED',
      recoveries: 0,
    });
    const next = sessionAfter(...READY, interrupted(1), assigned(2));
    expect(sessionStateOf(next)).toBe('Waiting');
    expect(sessionContextOf(next)).toMatchObject({ recoveries: 1, noticeDue: true, epoch: 2 });
  });

  test('a job that was queued again by the backend is told in the same way', () => {
    expect(sessionContextOf(sessionAfter(...READY, withdrawn()))).toMatchObject({ recoveries: 1, noticeDue: true });
  });

  test('the first step after that takes the notice', () => {
    const ready = [prepared(), granted(), ...[0, 1].flatMap((rank) => [registered(rank, 2), answered(rank, 2)])];
    const session = sessionAfter(...READY, interrupted(1), assigned(2), ...ready, stepRequested(5));
    expect(sessionContextOf(session).noticeDue).toBe(false);
  });
});

test('steps that have ended are kept up to a number, the newest last', () => {
  const events = Array.from({ length: STEPS_KEPT + 5 }, (_, n) => [stepRequested(n + 1), stepEnded(n + 1)]).flat();
  const { pastSteps, openSteps } = sessionContextOf(sessionAfter(...READY, ...events));
  expect([pastSteps.length, openSteps.length]).toEqual([STEPS_KEPT, 0]);
  expect(pastSteps.at(-1)?.stepId).toMatch(new RegExp(`0${String(STEPS_KEPT + 5)}$`));
});
