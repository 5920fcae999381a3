import type { JobEvent } from '../../src/machines/job-events.js';
import { at, conclusiveEvidence } from './job-events.js';

const sent: readonly JobEvent[] = [at(1).started()];
const unknown: readonly JobEvent[] = [...sent, at(10).lost()];
const pending: readonly JobEvent[] = [...sent, at(10).accepted()];
const running: readonly JobEvent[] = [...pending, at(20).running()];
const completing: readonly JobEvent[] = [...running, at(30).completion()];
const threeLosses: readonly JobEvent[] = [at(100).lossNoted(), at(400).lossNoted(), at(700).lossNoted()];

/** The ways a job can be somewhere that make a difference: what happened after its creation. */
export const SITUATIONS = {
  'Submitting, nothing sent': [],
  'Submitting, sent': sent,
  'Submitting, sent and wished away': [...sent, at(2).cancelRequested()],
  'Submitting, sent and past the watch limit': [...sent, at(2).cancelRequested('WATCH_LIMIT_EXCEEDED')],
  'Submitting, deferred': [...sent, at(10).deferred()],
  'Unknown, nothing shown': unknown,
  'Unknown, evidence complete': [...unknown, ...conclusiveEvidence()],
  'Unknown, evidence complete, wished away': [...unknown, at(15).cancelRequested(), ...conclusiveEvidence()],
  'Unknown, evidence complete, past the watch limit': [
    ...unknown,
    at(15).cancelRequested('WATCH_LIMIT_EXCEEDED'),
    ...conclusiveEvidence(),
  ],
  Pending: pending,
  'Pending, wished away': [...pending, at(20).cancelRequested()],
  'Pending, past the watch limit': [...pending, at(20).cancelRequested('WATCH_LIMIT_EXCEEDED')],
  'Pending, loss confirmed': [...pending, ...threeLosses],
  Running: running,
  'Running, wished away': [...running, at(30).cancelRequested()],
  'Running, past the watch limit': [...running, at(30).cancelRequested('WATCH_LIMIT_EXCEEDED')],
  'Running, loss confirmed': [...running, ...threeLosses],
  'Running, completion reported': completing,
  Completed: [...completing, at(40).collected()],
  Failed: [...running, at(30).failed()],
  Cancelled: [...running, at(30).cancelled()],
  Lost: [...running, ...threeLosses, at(700).lossConfirmed()],
} as const satisfies Readonly<Record<string, readonly JobEvent[]>>;

export type Situation = keyof typeof SITUATIONS;

/** One of each event (and of each kind of it that a guard tells apart), late enough to follow every situation. */
export const EVENTS = {
  started: at(5000).started(2),
  accepted: at(5000).accepted(),
  rejected: at(5000).rejected(),
  deferred: at(5000).deferred(),
  lost: at(5000).lost(),
  attemptEnded: at(5000).attemptEnded(),
  absent: at(5000).absent('queue'),
  found: at(5000).found(),
  disproved: at(5000).disproved(),
  pending: at(5000).pending(),
  running: at(5000).running(),
  failed: at(5000).failed(),
  cancelled: at(5000).cancelled(),
  completion: at(5000).completion(),
  collected: at(5000).collected(),
  unusable: at(5000).unusable(),
  lossNoted: at(5000).lossNoted(),
  lossConfirmed: at(5000).lossConfirmed(),
  cancelRequested: at(5000).cancelRequested(),
  watchLimit: at(5000).cancelRequested('WATCH_LIMIT_EXCEEDED'),
  cancelSent: at(5000).cancelSent(),
  abandoned: at(5000).abandoned(),
  duplicateFound: at(5000).duplicateFound(),
  duplicateEnded: at(5000).duplicateEnded(),
  delivered: at(5000).delivered(),
  directoryRemoved: at(5000).directoryRemoved(),
  lateObserved: at(5000).lateObserved(),
} as const satisfies Readonly<Record<string, JobEvent>>;

export type EventName = keyof typeof EVENTS;
