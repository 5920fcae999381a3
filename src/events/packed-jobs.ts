import { createHash } from 'node:crypto';
import { createJob, storeJob, type StoredJob } from '../machines/job-aggregate.js';
import type { JobCreated, JobPolicy } from '../machines/job-events.js';
import { jobMachine } from '../machines/job.js';
import { Epoch, JobId, TaskId, Token } from '../machines/vocabulary.js';
import { fromTable, toTable, type Row, type Table } from './columns.js';

/** To be raised when packing changes, or when the fold comes to other contexts although transitions stay the same. */
const FOLD = 3;

const UNIQUE = '0'.repeat(26);
const SAMPLE: JobCreated = {
  type: 'job.created',
  v: 1,
  atMs: 0,
  jobId: JobId.parse(`job_${UNIQUE}`),
  taskId: TaskId.parse(`task_${UNIQUE}`),
  epoch: Epoch.parse(1),
  token: Token.parse(UNIQUE),
  kind: '',
  profile: '',
  inherited: false,
  parameters: null,
  watchUntilMs: null,
  policy: { settleMs: 0, looks: 0, sources: [], lossGraceMs: 0, lossLooks: 0, heldFailsAfterMs: null },
};
const FRESH: StoredJob = storeJob(createJob(SAMPLE));
const FRESH_FIELDS: ReadonlyMap<string, unknown> = new Map(Object.entries(FRESH.context));
const FRESH_AFTERMATH = JSON.stringify(FRESH.aftermath);

/** Says which machine made a checkpoint: its transitions, the fields of a job and their first values. */
const SHAPE = createHash('sha256')
  .update(JSON.stringify([FOLD, jobMachine.config, FRESH]))
  .digest('hex');

interface PackedJobs {
  readonly shape: string;
  readonly policies: readonly JobPolicy[];
  /** Rows of `PackedJob`. */
  readonly jobs: Table;
}

/** Fields that are as in a fresh job are left out; the policy is a place in `policies`. */
interface PackedJob extends Row {
  readonly phase: StoredJob['phase'];
  readonly version: number;
  readonly context: Row;
  readonly policy: number;
  readonly aftermath?: StoredJob['aftermath'];
}

/**
 * Jobs as a checkpoint keeps them: plain JSON. Packed, because reading it is most of a restart (100,000 jobs: 92 MB as they
 * are, 28 MB packed).
 */
export function packJobs(stored: Iterable<StoredJob>): PackedJobs {
  const policies = new Map<string, { readonly index: number; readonly policy: JobPolicy }>();
  const jobs: PackedJob[] = [];
  for (const { phase, version, context, aftermath } of stored) {
    const { policy, ...rest } = context;
    const key = JSON.stringify(policy);
    const known = policies.get(key) ?? { index: policies.size, policy };
    policies.set(key, known);
    const changed = Object.fromEntries(
      Object.entries(rest).filter(([field, value]) => FRESH_FIELDS.get(field) !== value),
    );
    const packed = { phase, version, policy: known.index, context: changed };
    jobs.push(JSON.stringify(aftermath) === FRESH_AFTERMATH ? packed : { ...packed, aftermath });
  }
  return { shape: SHAPE, policies: [...policies.values()].map(({ policy }) => policy), jobs: toTable(jobs) };
}

/**
 * Undoes `packJobs`. Null for anything that this release did not pack: a checkpoint only saves time. What it did pack is
 * not validated job by job, which would take longer than reading it.
 */
export function unpackJobs(data: unknown): Iterable<StoredJob> | null {
  return isOurs(data) ? unpack(data) : null;
}

const isOurs = (data: unknown): data is PackedJobs =>
  typeof data === 'object' && data !== null && 'shape' in data && data.shape === SHAPE;

function* unpack({ policies, jobs }: PackedJobs): Generator<StoredJob> {
  for (const row of fromTable(jobs)) {
    const { phase, version, context, policy: index, aftermath = FRESH.aftermath } = row as PackedJob;
    const policy = policies[index] ?? FRESH.context.policy;
    yield { phase, version, context: { ...FRESH.context, ...context, policy }, aftermath };
  }
}
