import type { RecordedEvent } from '../events/store.js';
import type { BackendEvent } from '../machines/backend-events.js';
import { disproofConditions, type Condition } from '../machines/evidence.js';
import { contextOf, evolveJob, phaseOf, type Job } from '../machines/job-aggregate.js';
import type { JobEvent } from '../machines/job-events.js';
import type { Handle, Phase } from '../machines/vocabulary.js';
import { toDuration, toTime } from './output.js';
import { hasBackendEvent, hasJobEvent } from './replay-states.js';

/** One entry of a job's story. */
export interface Chapter {
  readonly atMs: number;
  readonly event: string;
  readonly text: string;
  /** What else was said, for people: each a line. */
  readonly details: readonly string[];
  /** The phase that this event led to; null when it changed none. */
  readonly phase: Phase | null;
  /** While a submission is in doubt (INV-8): what speaks for sending it again, after this event. */
  readonly evidence: readonly Condition[];
  /** The one line that follows from the evidence. */
  readonly verdict: string | null;
}

/**
 * The story of one job: its own events, and in between the outages of its backend. `records` are in the order of the
 * log and hold the job's whole stream and the backends' streams; events of other streams are left out.
 */
export function explainJob(records: readonly RecordedEvent[]): readonly Chapter[] {
  const chapters: Chapter[] = [];
  let job: Job | null = null;
  for (const recorded of records) {
    if (hasJobEvent(recorded)) {
      const before: Job | null = job;
      job = evolveJob(job, recorded.event);
      chapters.push(chapterOf(recorded.event, before, job));
    } else if (hasBackendEvent(recorded) && job !== null && !job.aftermath.delivered) {
      const text = outageText(recorded.event);
      if (text !== null) {
        const { atMs, type } = recorded.event;
        chapters.push({ atMs, event: type, text, details: [], phase: null, evidence: [], verdict: null });
      }
    }
  }
  return chapters;
}

function chapterOf(event: JobEvent, before: Job | null, after: Job): Chapter {
  const phase = before === null || phaseOf(before) !== phaseOf(after) ? phaseOf(after) : null;
  const { text, details = [] } = tell(event, before ?? after);
  return { atMs: event.atMs, event: event.type, text, details, phase, ...evidenceOf(event, before, after) };
}

/** The evidence is of interest where it grows, and where something was concluded from it. */
function evidenceOf(event: JobEvent, before: Job | null, after: Job): Pick<Chapter, 'evidence' | 'verdict'> {
  switch (event.type) {
    case 'submission.lost':
    case 'attempt.ended':
    case 'lookup.absent': {
      const evidence = disproofConditions(contextOf(after));
      const missing = evidence.filter(({ met }) => !met).length;
      const verdict =
        missing === 0
          ? 'enough: it may be submitted again'
          : `not enough to submit again: ${String(missing)} of ${String(evidence.length)} conditions are not met`;
      return { evidence, verdict };
    }
    case 'submission.disproved': {
      const evidence = before === null ? [] : disproofConditions(contextOf(before));
      const next = phaseOf(after) === 'Submitting' ? 'it is submitted again' : 'and nobody wants it any more';
      return { evidence, verdict: `a conclusive negative: the submission never landed; ${next}` };
    }
    default:
      return { evidence: [], verdict: null };
  }
}

const named = ({ id, cluster }: Handle): string => (cluster === null ? id : `${id} on ${cluster}`);
const words = (diagnostics: Readonly<Record<string, string>>): readonly string[] =>
  Object.entries(diagnostics).map(([key, value]) => `${key}: ${value}`);
const orNothing = (text: string): readonly string[] => (text === '' ? [] : [text]);
const because = (reason: string | null): string => (reason === null ? '' : `, ${reason}`);

interface Told {
  readonly text: string;
  readonly details?: readonly string[];
}

const LOST: Readonly<Record<string, string>> = {
  timedOut: 'no answer within the time limit; the request may have taken effect',
  unreachable: 'the call failed in a way that proves nothing',
  unreadable: 'an answer without a readable job id',
  interrupted: 'the worker stopped before the answer was recorded',
  inherited: "another worker's job, known only by its token",
};

/** What happened, in words. `job`: as it was before (for the first event: after). */
function tell(event: JobEvent, job: Job): Told {
  switch (event.type) {
    case 'job.created': {
      const { taskId, epoch, profile, token, watchUntilMs, inherited, policy } = event;
      return {
        text: `made for ${taskId} (epoch ${String(epoch)}), profile ${profile}${inherited ? ', taken over from another worker to be ended' : ''}`,
        details: [
          `token ${token}`,
          `a lost submission counts as never landed after ${String(policy.looks)} times "not here" of ${policy.sources.join(' and ')} over ${toDuration(policy.settleMs)}`,
          `absence counts as lost after ${String(policy.lossLooks)} answers over ${toDuration(policy.lossGraceMs)}`,
          ...(watchUntilMs === null ? [] : [`watched until ${toTime(watchUntilMs)}`]),
        ],
      };
    }
    case 'submission.started':
      return { text: `submission ${String(event.attempt)} is about to be sent` };
    case 'submission.accepted':
      return { text: `accepted as ${named(event.handle)}` };
    case 'submission.rejected':
      return { text: `refused${because(event.reason)}`, details: orNothing(event.detail) };
    case 'submission.deferred':
      return {
        text: `"not now": ${event.limit}; not tried again before ${toTime(event.notBeforeMs)}`,
        details: orNothing(event.detail),
      };
    case 'submission.lost':
      return {
        text: `the answer was lost: ${LOST[event.cause] ?? event.cause}`,
        details: [
          ...orNothing(event.detail),
          ...(event.hint === null ? [] : [`it may be ${event.hint}: to be confirmed`]),
        ],
      };
    case 'attempt.ended':
      return { text: 'no process of the attempt is left that could still send it', details: orNothing(event.how) };
    case 'lookup.absent':
      return {
        text: `asked ${event.source} for the token at ${toTime(event.askedAtMs)}: not here (it has answered since ${toTime(event.healthySinceMs)})`,
        details: orNothing(event.detail),
      };
    case 'submission.found':
      return { text: `found in the ${event.source} by its token: ${named(event.handle)}; it had landed after all` };
    case 'submission.disproved':
      return { text: 'concluded that the submission never landed' };
    case 'job.observed':
      return {
        text: `${event.source} says ${event.phase}${because(event.reason)}${event.waiting === null ? '' : ` (${event.waiting})`}`,
        details: [...orNothing(event.why), ...words(event.diagnostics)],
      };
    case 'completion.reported':
      return { text: `${event.source} says completed`, details: [...event.warnings, ...words(event.diagnostics)] };
    case 'result.collected':
      return { text: `its result was read: ${String(event.bytes)} bytes, sha256 ${event.sha256}` };
    case 'result.unusable':
      return { text: `its result does not count, ${event.reason}`, details: orNothing(event.detail) };
    case 'loss.noted': {
      const { loss, policy } = contextOf(job);
      const looks = loss?.reason === event.reason && event.healthySinceMs <= loss.firstAtMs ? loss.looks + 1 : 1;
      return {
        text: `evidence ${String(looks)} of ${String(policy.lossLooks)} that it is gone, ${event.reason}`,
        details: orNothing(event.detail),
      };
    }
    case 'loss.confirmed':
      return { text: `concluded that it is gone, ${event.reason}` };
    case 'cancel.requested':
      return { text: `its end was asked for by ${event.by}, ${event.reason}` };
    case 'cancel.sent':
      return {
        text: `cancel ${String(event.attempt)} is about to be sent; the next one not before ${toTime(event.nextAtMs)}`,
      };
    case 'job.abandoned':
      return { text: `abandoned by ${event.by}: what runs at the backend may live on` };
    case 'duplicate.found':
      return {
        text: `TWO JOBS CARRY ITS TOKEN: ${named(event.keep)} is kept, to be cancelled: ${event.cancel.map(named).join(', ')}`,
      };
    case 'duplicate.ended':
      return { text: `the duplicate ${named(event.handle)} has ended` };
    case 'outcome.delivered':
      return {
        text: event.accepted ? 'the coordinator took the outcome' : 'the coordinator did not take the outcome',
        details: orNothing(event.detail),
      };
    case 'directory.removed':
      return { text: event.kept === null ? 'its directory was removed' : `its directory was kept: ${event.kept}` };
    case 'late.observed':
      return {
        text: `too late to change anything: the backend says ${event.phase}${because(event.reason)}`,
        details: words(event.diagnostics),
      };
  }
}

function outageText(event: BackendEvent): string | null {
  switch (event.type) {
    case 'outage.began':
      return `OUTAGE: the backend's ${event.part} can not be asked (${event.kind}: ${event.detail}); ${String(event.jobsKept)} jobs kept as they were`;
    case 'outage.ended':
      return `the backend's ${event.part} answers again`;
    case 'worker.started':
      return `worker ${event.worker} started`;
    case 'oddity.seen':
      return null;
  }
}
