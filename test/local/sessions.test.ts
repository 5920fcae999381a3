import { describeSessions } from '../contract/session.contract.js';
import { openLocalSite } from '../support/local-session-site.js';

const hints = {
  nodeVariable: 'OPEN_COMPUTE_NODE',
  rankVariable: 'OPEN_COMPUTE_RANK',
  patienceMs: 15_000,
  recoveryMs: 30_000,
  idleLimitS: 3,
};

describeSessions('on this machine', () => openLocalSite(hints), hints);
