/** The Slurm backend: the port's commands, and the file that says what people may run. */
export { createSlurmBackend } from './backend.js';
export { createProcessRun, type Call, type Ending, type Run } from './broker.js';
export { DEFAULT_LIMITS, type Limits, type SlurmConfig } from './config.js';
export { type Host } from './host.js';
export { commandEnvironment, currentUser, type CommandUser } from './environment.js';
export {
  loadClusterConfig,
  profileFromPath,
  publicProfile,
  type ClusterConfig,
  type LoadedCluster,
  type PublicProfile,
} from './profiles.js';
export { checkScript } from './script-check.js';
export { parseState, SLURM_STATES, STATES, type SlurmState } from './states.js';
