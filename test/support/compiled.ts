import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import ts from 'typescript';
import { temporaryDirectory } from './temporary-directory.js';

const ROOT = resolve(import.meta.dirname, '../..');

/**
 * Compiles folders of src/ (types are not checked) into a temporary directory, so that a child process can import them.
 * Returns that directory.
 */
export function compiled(...folders: readonly string[]): string {
  const out = temporaryDirectory();
  writeFileSync(join(out, 'package.json'), '{"type":"module"}');
  symlinkSync(join(ROOT, 'node_modules'), join(out, 'node_modules'));
  const options = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, isolatedModules: true };
  for (const folder of folders) {
    for (const name of readdirSync(join(ROOT, 'src', folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts')) continue;
      const source = readFileSync(join(ROOT, 'src', folder, name), 'utf8');
      const target = join(out, folder, name.replace(/\.ts$/, '.js'));
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, ts.transpileModule(source, { compilerOptions: options }).outputText);
    }
  }
  return out;
}
