// What people type in forms, and what programs want: commands, locks, times.

/** The arguments of a line, as a shell splits it; its other signs mean nothing. */
export function split(line) {
  const found = [];
  let [word, quote, hasSigns] = [null, "", false];
  const add = (sign) => { word = (word ?? "") + sign; };
  for (let place = 0; place < line.length; place += 1) {
    const sign = line[place];
    const next = line[place + 1];
    if (quote === "'") {
      if (sign === quote) quote = "";
      else add(sign);
    } else if (sign === "\\" && (quote ? next && "\"\\$`\n".includes(next) : true)) {
      if (next === undefined) throw new Error("the command ends with a backslash");
      if (next !== "\n") add(next);
      place += 1;
    } else if (quote) {
      hasSigns ||= "$`".includes(sign);
      if (sign === quote) quote = "";
      else add(sign);
    } else if (sign === "'" || sign === '"') {
      quote = sign;
      add("");
    } else if (/[ \t\r\n]/.test(sign)) {
      if (word !== null) found.push(word);
      word = null;
    } else {
      hasSigns ||= "|<>&;$*?`~".includes(sign);
      add(sign);
    }
  }
  if (quote) throw new Error(`the quote ${quote} is not closed`);
  if (word !== null) found.push(word);
  return { argv: found, hasSigns };
}

/** The line that a shell splits into these arguments. */
export function quoted(argv) {
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", `'\\''`)}'`)).join(" ");
}

/** The locks of a text such as `node/n1, instance/web:shared`: [level, name, mode] each; a mode may be missing. */
export function locksIn(text) {
  return text.split(/[\s,]+/).filter(Boolean).map((one) => {
    const found = /^([^/:]+)\/([^:]+)(?::(shared|exclusive))?$/.exec(one);
    if (!found) throw new Error(`expected locks such as node/n1 or instance/web:shared, got ${one}`);
    return [found[1], found[2], found[3]];
  });
}

const UNITS = { "": 1, s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };

/** The seconds of a time such as 90, 1.5, 30m, 2h or 7d. */
export function secondsIn(text) {
  const found = /^(\d+(?:\.\d+)?)\s*([smhdw]?)$/.exec(text.trim());
  if (!found) throw new Error(`expected a time such as 90, 30m or 2h, got ${text}`);
  return Number(found[1]) * UNITS[found[2]];
}
