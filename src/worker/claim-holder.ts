import type { JobAnswer, SeenAnswer } from '../backend.js';
import { sameHandle, type Handle } from '../machines/vocabulary.js';
import type { ClaimReply } from './directories.js';

/** Whether the claim says more about this answer: more than one job was made for its token. */
export const hasRivals = (answer: JobAnswer): answer is SeenAnswer =>
  answer.kind === 'seen' && (answer.duplicates.length > 0 || isBeaten(answer));

/** It found the claim taken, and ended. */
const isBeaten = ({ state }: SeenAnswer): boolean => state.phase === 'Failed' && state.reason === 'DUPLICATE';

const isLive = ({ state }: SeenAnswer): boolean => state.phase === 'Pending' || state.phase === 'Running';

/**
 * Of the jobs with one token the one that holds the claim does the work, whichever came first: it is ours, and the
 * others are to go (INV-8). How it fares shows when it is asked about by its own id.
 */
export function byClaim(answer: SeenAnswer, claim: ClaimReply): JobAnswer {
  if (claim.kind === 'unknown') return { kind: 'unanswered', detail: claim.detail, queueAbsent: false };
  if (claim.kind === 'none' || claim.id === answer.handle.id) return answer;
  const holder = answer.duplicates.find(({ id }) => id === claim.id) ?? null;
  if (holder === null && !isBeaten(answer)) return answer;
  const handle: Handle = holder ?? { ...answer.handle, id: claim.id };
  const others = answer.duplicates.filter((one) => !sameHandle(one, handle));
  return {
    ...answer,
    handle,
    state: { phase: 'Running', ending: false },
    why: 'running: it holds the claim on the job directory',
    duplicates: isLive(answer) ? [...others, answer.handle] : others,
  };
}
