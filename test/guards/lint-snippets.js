/**
 * Lints snippets as if they stood at given paths, with the bans that eslint.config.js has for those paths. A process of
 * its own: ESLint loads its configuration by import(), which jest's module registry does not offer to it.
 * stdin: JSON [{path, code}]; stdout: JSON string[][], the messages for each.
 */
import { ESLint, Linter } from 'eslint';
import { readFileSync } from 'node:fs';

const eslint = new ESLint();
const linter = new Linter();
const answers = [];
for (const { path, code } of JSON.parse(readFileSync(0, 'utf8'))) {
  const { rules } = await eslint.calculateConfigForFile(path);
  const bans = Object.fromEntries(Object.entries(rules).filter(([name]) => name.startsWith('no-restricted-')));
  answers.push(linter.verify(code, [{ rules: bans }]).map(({ ruleId, message }) => `${ruleId}: ${message}`));
}
process.stdout.write(JSON.stringify(answers));
