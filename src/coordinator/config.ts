/** Everything about the coordinator that a site may want different. Times in ms. */
export interface CoordinatorConfig {
  readonly leaseTtlMs: number;
  /** How many jobs of a task may be lost before it goes to the dead letters. */
  readonly lossesMax: number;
  /** UTF-8 bytes of a payload as JSON. */
  readonly payloadLimitBytes: number;
  readonly resultLimitBytes: number;
  /** Levels of arrays and objects in a payload or a result. */
  readonly jsonDepthMax: number;
  /** A task that a worker gave back waits this long before it is given out again. */
  readonly releaseBackoffMs: number;
  /** A lease that its worker has not spoken of for this long, though it speaks of others, was granted in a lost answer. */
  readonly unclaimedGraceMs: number;
  /** A worker that has not been heard for this long counts as gone in what people are told. */
  readonly workerLiveMs: number;
  /** How long after a request for a task's output its worker is asked for more. */
  readonly outputWantedMs: number;
  /** Finished tasks that the list of tasks still shows. */
  readonly finishedMax: number;
  /** Events between two checkpoints. */
  readonly checkpointEvery: number;
  /** Changes kept in memory for everybody who watches. */
  readonly changesKept: number;
}

export const DEFAULT_CONFIG: CoordinatorConfig = {
  leaseTtlMs: 15 * 60_000,
  lossesMax: 3,
  payloadLimitBytes: 256 * 1024,
  resultLimitBytes: 4 * 1024 * 1024,
  jsonDepthMax: 100,
  releaseBackoffMs: 5_000,
  unclaimedGraceMs: 30_000,
  workerLiveMs: 120_000,
  outputWantedMs: 60_000,
  finishedMax: 100_000,
  checkpointEvery: 20_000,
  changesKept: 5_000,
};
