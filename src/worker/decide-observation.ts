import type { JobAnswer, SeenAnswer, SeenState } from '../backend.js';
import { clip, clipDiagnostics, NAME_MAX, TEXTS_MAX } from '../events/schema-parts.js';
import { isDisproved, isLossConfirmed } from '../machines/evidence.js';
import { contextOf, evolveJob, isTerminal, phaseOf, type Job } from '../machines/job-aggregate.js';
import type { JobEvent } from '../machines/job-events.js';
import { sameHandle, type Source } from '../machines/vocabulary.js';

/** When a poll was made, and since when each source has answered without a break. All Unix epoch ms. */
export interface PollTime {
  readonly askedAtMs: number;
  readonly nowMs: number;
  readonly healthySinceMs: Readonly<Record<Source, number>>;
}

/** A pending reason that only flickers (Priority, Resources …) is news at most this often. */
const WHY_CHANGES_EVERY_MS = 600_000;
/** What a job may take at most of which no limit is known, ms. */
const NO_LIMIT_MS = 24 * 3_600_000;

/**
 * What one answer adds to a job's stream: the events that are news, nothing otherwise. An answer that proves nothing
 * adds nothing (INV-10); absence becomes Lost, or "never landed", only through evidence that is in the log.
 */
export function decideObservation(job: Job, answer: JobAnswer, time: PollTime): readonly JobEvent[] {
  const draft = new Draft(job);
  if (isTerminal(job)) decideAfterEnd(draft, answer, time);
  else if (phaseOf(job) === 'Submitting') return [];
  else if (answer.kind === 'seen') decideSeen(draft, answer, time);
  else if (answer.kind === 'absent') decideAbsent(draft, answer, time);
  return draft.events;
}

/** Events so far, and the job as they leave it: later decisions see earlier ones. */
class Draft {
  readonly events: JobEvent[] = [];
  job: Job;
  constructor(job: Job) {
    this.job = job;
  }
  add(event: JobEvent): void {
    this.job = evolveJob(this.job, event);
    this.events.push(event);
  }
}

function decideSeen(draft: Draft, answer: SeenAnswer, time: PollTime): void {
  const atMs = time.nowMs;
  decideDuplicates(draft, answer, atMs);
  if (phaseOf(draft.job) === 'Unknown') {
    draft.add({ type: 'submission.found', v: 1, atMs, handle: answer.handle, source: answer.source });
  }
  const context = contextOf(draft.job);
  if (context.completion !== null) return;
  const { state } = answer;
  switch (state.phase) {
    case 'Pending':
    case 'Running':
      decideLive(draft, answer, state, time);
      return;
    case 'Completed':
      draft.add({
        type: 'completion.reported',
        v: 1,
        atMs,
        source: answer.source,
        handle: answer.handle,
        warnings: answer.warnings.slice(0, TEXTS_MAX).map((warning) => clip(warning)),
        diagnostics: clipDiagnostics(answer.diagnostics),
      });
      return;
    case 'Failed':
    case 'Cancelled':
      draft.add(observed(answer, state.phase, state.reason, atMs));
      return;
    case 'Lost':
      noteLoss(draft, state.reason, answer.why, answer.source, time);
  }
}

function decideLive(
  draft: Draft,
  answer: SeenAnswer,
  state: Extract<SeenState, { phase: 'Pending' | 'Running' }>,
  time: PollTime,
): void {
  const { seen, loss, cancel, policy } = contextOf(draft.job);
  const atMs = time.nowMs;
  const waiting = state.phase === 'Pending' ? state.waiting : null;
  const isNews =
    seen === null ||
    state.phase !== phaseOf(draft.job) ||
    seen.phase !== state.phase ||
    seen.waiting !== waiting ||
    loss !== null ||
    (seen.why !== clip(answer.why) && atMs - seen.atMs >= WHY_CHANGES_EVERY_MS);
  if (isNews) draft.add(observed(answer, state.phase, null, atMs));
  if (waiting === null || waiting === 'queued' || cancel !== null) return;
  const sinceMs = contextOf(draft.job).seen?.waitingSinceMs ?? atMs;
  const heldTooLong = policy.heldFailsAfterMs !== null && atMs - sinceMs >= policy.heldFailsAfterMs;
  if (waiting === 'never' || heldTooLong) {
    const by = clip(`the worker: ${answer.why}`, NAME_MAX);
    draft.add({ type: 'cancel.requested', v: 1, atMs, reason: 'UNSCHEDULABLE', by });
  }
}

function observed(
  answer: SeenAnswer,
  phase: 'Pending' | 'Running' | 'Failed' | 'Cancelled',
  reason: Extract<SeenState, { phase: 'Failed' }>['reason'] | null,
  atMs: number,
): JobEvent {
  return {
    type: 'job.observed',
    v: 1,
    atMs,
    phase,
    reason,
    source: answer.source,
    waiting: answer.state.phase === 'Pending' ? answer.state.waiting : null,
    why: clip(answer.why),
    handle: answer.handle,
    diagnostics: clipDiagnostics(answer.diagnostics),
  };
}

/** The job of a token that the answer is about is ours, also if we knew another one first (INV-8). */
function decideDuplicates(draft: Draft, answer: SeenAnswer, atMs: number): void {
  const { handle } = contextOf(draft.job);
  const known = draft.job.aftermath.duplicates;
  const fresh = answer.duplicates.filter((extra) => !known.some((one) => sameHandle(one, extra)));
  const isReplaced = handle !== null && !sameHandle(handle, answer.handle);
  if (fresh.length > 0 || isReplaced) {
    draft.add({ type: 'duplicate.found', v: 1, atMs, keep: answer.handle, cancel: fresh });
  }
  decideEndedDuplicates(draft, answer.duplicates, atMs);
}

function decideEndedDuplicates(draft: Draft, alive: SeenAnswer['duplicates'], atMs: number): void {
  for (const handle of draft.job.aftermath.duplicates) {
    if (!alive.some((one) => sameHandle(one, handle))) draft.add({ type: 'duplicate.ended', v: 1, atMs, handle });
  }
}

function decideAbsent(draft: Draft, answer: Extract<JobAnswer, { kind: 'absent' }>, time: PollTime): void {
  if (phaseOf(draft.job) === 'Unknown') {
    decideAbsentLook(draft, answer, time);
    return;
  }
  decideEndedDuplicates(draft, [], time.nowMs);
  if (contextOf(draft.job).completion !== null) return;
  const { policy, watchUntilMs, createdAtMs } = contextOf(draft.job);
  if (answer.accounting === 'stillActive') {
    // A row that nobody closed proves nothing until the job's own time limit has run out (INV-11). Where none is known,
    // the queue's word has to do once the job is watched no longer.
    const limitEndsAtMs = answer.limitEndsAtMs ?? watchUntilMs ?? createdAtMs + NO_LIMIT_MS;
    if (time.nowMs < limitEndsAtMs + policy.lossGraceMs) return;
  }
  noteLoss(draft, 'NOT_FOUND', answer.detail, answer.accounting === 'notKept' ? 'queue' : 'accounting', time);
}

/** Only looks after the attempt's last process count, evenly spread over the settling time. */
function decideAbsentLook(draft: Draft, answer: Extract<JobAnswer, { kind: 'absent' }>, time: PollTime): void {
  const { lookup, policy } = contextOf(draft.job);
  if (lookup === null || lookup.endedAtMs === null || answer.accounting === 'stillActive') return;
  const gapMs = Math.ceil(policy.settleMs / Math.max(1, policy.looks - 1));
  const isDue =
    lookup.lastLookAtMs === null ||
    time.askedAtMs - lookup.lastLookAtMs >= gapMs ||
    time.askedAtMs < lookup.lastLookAtMs ||
    policy.sources.some((source) => time.healthySinceMs[source] > (lookup.firstLookAtMs ?? 0));
  if (!isDue) return;
  for (const source of policy.sources) {
    if (source === 'accounting' && answer.accounting === 'notKept') continue;
    draft.add({
      type: 'lookup.absent',
      v: 1,
      atMs: time.nowMs,
      source,
      askedAtMs: time.askedAtMs,
      healthySinceMs: time.healthySinceMs[source],
      detail: clip(answer.detail),
    });
  }
  if (isDisproved(contextOf(draft.job))) {
    draft.add({ type: 'submission.disproved', v: 1, atMs: time.nowMs });
  }
}

function noteLoss(
  draft: Draft,
  reason: 'NOT_FOUND' | 'NODE_FAILED' | 'PREEMPTED',
  detail: string,
  source: Source,
  time: PollTime,
): void {
  const { loss, policy } = contextOf(draft.job);
  const healthySinceMs = Math.max(time.healthySinceMs.queue, time.healthySinceMs[source]);
  const gapMs = Math.ceil(policy.lossGraceMs / Math.max(1, policy.lossLooks - 1));
  const isDue =
    loss === null ||
    loss.reason !== reason ||
    healthySinceMs > loss.firstAtMs ||
    time.nowMs < loss.lastAtMs ||
    time.nowMs - loss.lastAtMs >= gapMs;
  if (!isDue) return;
  draft.add({ type: 'loss.noted', v: 1, atMs: time.nowMs, reason, healthySinceMs, detail: clip(detail) });
  if (isLossConfirmed(contextOf(draft.job))) {
    draft.add({ type: 'loss.confirmed', v: 1, atMs: time.nowMs, reason });
  }
}

/** A terminal job changes no more (INV-6): one late word is kept for people, and duplicates are seen to their end. */
function decideAfterEnd(draft: Draft, answer: JobAnswer, time: PollTime): void {
  const atMs = time.nowMs;
  if (answer.kind === 'unanswered') return;
  const alive = answer.kind === 'seen' ? answer.duplicates : [];
  decideEndedDuplicates(draft, alive, atMs);
  if (answer.kind !== 'seen' || draft.job.aftermath.lateObservations > 0) return;
  if (answer.state.phase === phaseOf(draft.job)) return;
  const reason = 'reason' in answer.state ? answer.state.reason : null;
  draft.add({
    type: 'late.observed',
    v: 1,
    atMs,
    phase: answer.state.phase,
    reason,
    diagnostics: clipDiagnostics(answer.diagnostics),
  });
}
