const shared = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  transform: { '^.+\\.ts$': ['ts-jest', { useESM: true, tsconfig: 'tsconfig.test.json' }] },
};

/** Two projects: `unit` needs no scheduler; `cluster` runs against the real one that test/cluster/up.sh brings up. */
export default {
  // Jest leaves one core free, which on two cores is half of the machine.
  maxWorkers: '100%',
  projects: [
    {
      ...shared,
      displayName: 'unit',
      // Not testPathIgnorePatterns: <rootDir> in a regular expression breaks in a checkout such as /src/a+b.
      testMatch: ['<rootDir>/test/*.test.ts', '<rootDir>/test/!(cluster)/**/*.test.ts'],
    },
    { ...shared, displayName: 'cluster', testMatch: ['<rootDir>/test/cluster/**/*.test.ts'] },
  ],
  collectCoverageFrom: ['src/**/*.ts'],
};
