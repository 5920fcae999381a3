import { join } from 'node:path';
import type { CancelReply, NoAnswer } from '../backend.js';
import { Token, type Handle } from '../machines/vocabulary.js';
import { outageOf, type LocalContext } from './context.js';
import { createOnce } from './create-once.js';
import { CANCELLED_CLAIM, lookAt } from './job-state.js';
import { isOverdue } from './observe.js';
import type { Submission } from './registry.js';
import { signalTrees, type Remains } from './trees.js';

/**
 * Asks jobs to end. One that has not started is withdrawn: its claim is taken, so its script can never win it. One that
 * runs gets SIGTERM, all of its processes, and SIGKILL when it is asked again after the grace.
 */
export async function cancelJobs(context: LocalContext, handles: readonly Handle[]): Promise<CancelReply> {
  const asked: Handle[] = [];
  const polite: Remains[] = [];
  const overdue: Remains[] = [];
  let outage: NoAnswer | null = null;
  for (const handle of handles) {
    try {
      const token = Token.safeParse(handle.id);
      const found = token.success ? await context.registry.find(token.data) : null;
      if (found?.kind === 'found') await cancelOne(context, found.submission, polite, overdue);
      asked.push(handle);
    } catch (error) {
      outage = outageOf(`cancelling ${handle.id}`, error);
    }
  }
  await signalTrees(polite, 'SIGTERM');
  await signalTrees(overdue, 'SIGKILL');
  return { asked, outage };
}

async function cancelOne(
  context: LocalContext,
  submission: Submission,
  polite: Remains[],
  overdue: Remains[],
): Promise<void> {
  const { registry, clock, killGraceMs } = context;
  const { token, jobId, directory } = submission;
  let state = await lookAt(submission, registry);
  if (state.kind === 'waiting') {
    if (await createOnce(join(directory, 'claim'), `${CANCELLED_CLAIM}\n`)) return;
    state = await lookAt(submission, registry);
  }
  if (state.kind !== 'running') return;
  const nowMs = clock.nowMs();
  // Noted before it is done: whoever looks next knows why the job ended.
  await registry.note(token, 'cancel', String(nowMs));
  const isLate = state.cancelAskedAtMs !== null && isOverdue(state.cancelAskedAtMs, nowMs, killGraceMs);
  (isLate ? overdue : polite).push({ jobId, run: state.run });
}
