import { createActor, type SnapshotFrom } from 'xstate';
import type { JobCreated, JobEvent, MachineEvent } from '../machines/job-events.js';
import { jobMachine } from '../machines/job.js';

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
 * Sends a job's stream through a live actor with XState's inspection API on, and hands over what it says. The machine
 * has no `invoke` and no `after`, so nothing is started. Events after the end are left out.
 */
export function inspectLive(
  created: JobCreated,
  events: Iterable<JobEvent>,
  tell: (message: InspectionMessage) => void,
): void {
  let atMs = created.atMs;
  const head = (): MessageHead => ({
    sessionId: created.jobId,
    rootId: created.jobId,
    _version: PROTOCOL,
    createdAt: String(atMs),
    id: null,
  });
  const actor = createActor(jobMachine, {
    input: created,
    id: created.jobId,
    inspect: (seen) => {
      // Microsteps and actions repeat what the snapshots say; the actor itself is announced below, with its snapshot.
      if (seen.type === '@xstate.event') tell({ type: seen.type, ...head(), event: seen.event });
      if (seen.type === '@xstate.snapshot') {
        tell({ type: seen.type, ...head(), event: seen.event, snapshot: shown(actor.getSnapshot()) });
      }
    },
  });
  const definition = JSON.stringify(jobMachine.config);
  tell({ type: '@xstate.actor', ...head(), name: created.jobId, definition, snapshot: shown(actor.getSnapshot()) });
  actor.start();
  for (const event of events) {
    atMs = event.atMs;
    if (isForMachine(event) && actor.getSnapshot().status === 'active') actor.send(event);
  }
  actor.stop();
}

const isForMachine = (event: JobEvent): event is Exclude<MachineEvent, { type: 'backend.unreachable' }> =>
  event.type !== 'job.created' && !BESIDE_THE_MACHINE.includes(event.type);

const shown = ({ status, value, tags, context }: SnapshotFrom<typeof jobMachine>): ShownSnapshot => ({
  status,
  value,
  tags: [...tags],
  context,
});
