import { createActor, type AnyMachineSnapshot, type AnyStateMachine } from 'xstate';
import type { JobCreated, JobEvent } from '../machines/job-events.js';
import { jobMachine } from '../machines/job.js';
import type { SessionEvent, SessionRequested } from '../machines/session-events.js';
import { sessionMachine } from '../machines/session.js';

/** The release of `@statelyai/inspect` whose messages these are: its receivers and the Stately inspector read them. */
const PROTOCOL = '0.7.2';

interface MessageHead {
  readonly sessionId: string;
  readonly rootId: string;
  readonly _version: string;
  /** Unix epoch ms as text: when it was recorded, not when it was replayed. */
  readonly createdAt: string;
  readonly id: null;
}

interface ShownSnapshot {
  readonly status: string;
  readonly value: string;
  readonly tags: readonly string[];
  readonly context: object;
}

export type InspectionMessage =
  | (MessageHead & {
      readonly type: '@xstate.actor';
      readonly name: string;
      /** The machine's config, as JSON. */
      readonly definition: string;
      readonly snapshot: ShownSnapshot;
    })
  | (MessageHead & { readonly type: '@xstate.event'; readonly event: { readonly type: string } })
  | (MessageHead & {
      readonly type: '@xstate.snapshot';
      readonly event: { readonly type: string };
      readonly snapshot: ShownSnapshot;
    });

/** Events of a job's log that the machine never sees: they change no phase (INV-6). */
const BESIDE_THE_MACHINE: readonly string[] = [
  'outcome.delivered',
  'directory.removed',
  'late.observed',
  'duplicate.ended',
] satisfies readonly JobEvent['type'][];

/**
 * Sends a stream, of a job or of a session, through a live actor with XState's inspection API on, and hands over what it
 * says. The machines have no `invoke` and no `after`, so nothing is started. Events after the end are left out. Throws an
 * Error for a stream that does not begin as one of these does.
 */
export function inspectLive(
  events: readonly (JobEvent | SessionEvent)[],
  tell: (message: InspectionMessage) => void,
): void {
  const [first] = events;
  if (first?.type === 'job.created') inspectWith(jobMachine, first.jobId, first, events, tell);
  else if (first?.type === 'session.requested') inspectWith(sessionMachine, first.taskId, first, events, tell);
  else throw new Error(`the stream begins with ${first?.type ?? 'nothing'}`);
}

function inspectWith(
  machine: typeof jobMachine | typeof sessionMachine,
  id: string,
  input: JobCreated | SessionRequested,
  events: readonly (JobEvent | SessionEvent)[],
  tell: (message: InspectionMessage) => void,
): void {
  let { atMs } = input;
  const head = (): MessageHead => ({
    sessionId: id,
    rootId: id,
    _version: PROTOCOL,
    createdAt: String(atMs),
    id: null,
  });
  const actor = createActor(machine as AnyStateMachine, {
    input,
    id,
    inspect: (seen) => {
      // Microsteps and actions repeat what the snapshots say; the actor itself is announced below, with its snapshot.
      if (seen.type === '@xstate.event') tell({ type: seen.type, ...head(), event: seen.event });
      if (seen.type === '@xstate.snapshot') {
        tell({ type: seen.type, ...head(), event: seen.event, snapshot: shown(actor.getSnapshot()) });
      }
    },
  });
  const definition = JSON.stringify(machine.config);
  tell({ type: '@xstate.actor', ...head(), name: id, definition, snapshot: shown(actor.getSnapshot()) });
  actor.start();
  for (const event of events.slice(1)) {
    ({ atMs } = event);
    if (!BESIDE_THE_MACHINE.includes(event.type) && actor.getSnapshot().status === 'active') actor.send(event);
  }
  actor.stop();
}

const shown = ({ status, value, tags, context }: AnyMachineSnapshot): ShownSnapshot => ({
  status,
  value: String(value),
  tags: [...tags],
  context: context as object,
});
