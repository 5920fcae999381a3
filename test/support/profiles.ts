import type { Profile } from '../../src/backend.js';

export const profile = (over: Partial<Profile> = {}): Profile => ({
  name: 'smoke',
  description: 'Transport smoke test',
  scriptPath: '/profiles/smoke.sh',
  session: null,
  sha256: null,
  cpus: null,
  memoryMiB: null,
  gpus: null,
  nodes: null,
  walltimeS: null,
  heldFailsAfterS: null,
  parametersSchema: null,
  environment: {},
  placement: {},
  ...over,
});
