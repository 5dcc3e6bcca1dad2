//! Pages of the documentation as a reader follows them: the commands in their order, the files to write, and the output to expect.
//!
//! | Block | Meaning |
//! |---|---|
//! | `sh` | commands, each of which must succeed. A line that ends with `# exit code 3` must end with that code |
//! | `console` | the same after `$ `, with the output that must follow |
//! | `toml` | a configuration that `shoal config check` must accept, unless it is another file than `shoal.toml` |
//! | any whose first line is a comment with a path (`# /etc/shoal/shoal.toml`, `# mine.toml`) | this file; `#!` may come first |
//! | any with `no-test REASON` after its language | left out |
//!
//! In an expected line, `…` stands for any text, and a run of blanks for any other. A line with nothing but `…` stands for any lines. A tracker that the page starts (`shoal` with nothing but options) goes on while the next commands run,
//! until the page starts the next one. Commands of cargo are left out: CI itself builds, tests and checks, and a release takes too long.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use std::{fs, mem};

use anyhow::{Context, Result, bail, ensure};

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(100);

/// The first character of the line that follows the output of a command, which ends with the exit code.
const END: char = '\u{1e}';

/// A page.
#[derive(Debug)]
pub struct Page {
    /// The file.
    pub path: PathBuf,
    /// The steps of the reader, in order.
    pub steps: Vec<Step>,
    /// The blocks that are not tested, and the commands of cargo.
    pub left_out: Vec<LeftOut>,
}

/// A step of a reader.
#[derive(Debug)]
pub struct Step {
    /// The line of the page, from 1.
    pub line: usize,
    /// The action.
    pub action: Action,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A command, the exit code that it must have, and in a block of the console the lines that it must print.
    Run {
        /// The text for the shell.
        command: String,
        /// The exit code.
        code: i32,
        /// The lines of output, if the page shows them.
        output: Option<Vec<String>>,
    },
    /// A configuration that `shoal config check` must accept.
    Check(String),
    /// A file to write.
    Write {
        /// The path, which may be relative.
        path: String,
        /// The content.
        text: String,
    },
}

/// A block or command that no test runs.
#[derive(Debug)]
pub struct LeftOut {
    /// The line of the page, from 1.
    pub line: usize,
    /// The first line of the block, or the command.
    pub text: String,
    /// Why. None if it is a command of cargo.
    pub reason: Option<String>,
}

impl Page {
    /// Reads a page. Each name in capitals of `replacements`, such as `HASH`, becomes its value wherever it is a word.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has a block that does not end.
    pub fn read(path: &Path, replacements: &[(&str, &str)]) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(path, &text, replacements)
    }

    fn parse(path: &Path, text: &str, replacements: &[(&str, &str)]) -> Result<Self> {
        let mut page = Self { path: path.to_owned(), steps: Vec::new(), left_out: Vec::new() };
        for mut block in blocks(text).with_context(|| format!("{}", path.display()))? {
            for (name, value) in replacements {
                block.lines.iter_mut().for_each(|line| *line = replace_word(line, name, value));
            }
            page.add(&block);
        }
        Ok(page)
    }

    fn add(&mut self, block: &Block) {
        let (language, rest) = block.info.split_once(' ').unwrap_or((&block.info, ""));
        if let Some(reason) = rest.strip_prefix("no-test ") {
            let text = block.lines.first().cloned().unwrap_or_default();
            let reason = Some(reason.to_owned());
            self.left_out.push(LeftOut { line: block.line, text, reason });
            return;
        }
        let file = file_name(&block.lines);
        if let Some(path) = file {
            let write = Action::Write { path: path.to_owned(), text: block.text() };
            self.steps.push(Step { line: block.line, action: write });
        }
        match language {
            "toml" if file.is_none_or(|path| path.ends_with("shoal.toml")) => {
                self.steps.push(Step { line: block.line, action: Action::Check(block.text()) });
            }
            "sh" if file.is_none() => self.add_commands(block),
            "console" => self.add_console(block),
            _ => {}
        }
    }

    fn add_commands(&mut self, block: &Block) {
        let mut command = Vec::new();
        for (number, line) in (block.line + 1..).zip(&block.lines) {
            command.push(line.as_str());
            if is_complete(&command) {
                let text = mem::take(&mut command).join("\n");
                self.add_command(number, text, None);
            }
        }
        // The shell will tell what is missing.
        if !command.is_empty() {
            self.add_command(block.line + block.lines.len(), command.join("\n"), None);
        }
    }

    fn add_console(&mut self, block: &Block) {
        let mut lines = (block.line + 1..).zip(&block.lines).peekable();
        while let Some((number, line)) = lines.next() {
            let mut command = vec![line.strip_prefix("$ ").unwrap_or(line)];
            while !is_complete(&command)
                && let Some((_, line)) = lines.next()
            {
                command.push(line);
            }
            let mut output = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with("$ ")) {
                output.push(line.clone());
            }
            self.add_command(number, command.join("\n"), Some(output));
        }
    }

    fn add_command(&mut self, line: usize, text: String, output: Option<Vec<String>>) {
        let start = text.trim_start();
        if start.is_empty() || start.starts_with('#') {
            return;
        }
        if start.starts_with("cargo ") && !starts_tracker(start) {
            self.left_out.push(LeftOut { line, text, reason: None });
            return;
        }
        let code = text.rsplit_once("# exit code ").and_then(|(_, code)| code.parse().ok()).unwrap_or(0);
        // A block of the console without output shows a command that has none, or whose output does not matter.
        let output = output.filter(|lines| !lines.is_empty());
        self.steps.push(Step { line, action: Action::Run { command: text, code, output } });
    }
}

/// A fenced block.
struct Block {
    /// The line of the fence, from 1.
    line: usize,
    /// The text after the fence.
    info: String,
    lines: Vec<String>,
}

impl Block {
    fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, fence)) = lines.next() {
        let Some((indent, info)) = fence.split_once("```") else { continue };
        if !indent.trim().is_empty() {
            continue;
        }
        let mut block = Block { line, info: info.trim().to_owned(), lines: Vec::new() };
        loop {
            let (_, text) = lines.next().with_context(|| format!("line {line}: the block has no end"))?;
            if text.trim_start().starts_with("```") {
                break;
            }
            // A block in a list is indented as a whole.
            block.lines.push(text.strip_prefix(indent).unwrap_or(text).to_owned());
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// Returns the path in the first comment, if it is nothing else: `# /etc/shoal/shoal.toml`, or with a remark after a semicolon.
fn file_name(lines: &[String]) -> Option<&str> {
    let mut lines = lines.iter().filter(|line| !line.starts_with("#!"));
    let comment = lines.next()?.strip_prefix("# ")?;
    let path = comment.split(';').next()?;
    let is_path = path.starts_with('/') || path.contains('.');
    (is_path && !path.contains(char::is_whitespace)).then_some(path)
}

/// Returns whether a command ends with its last line, which continues after a backslash, or up to the end of a here-document.
fn is_complete(lines: &[&str]) -> bool {
    let Some(last) = lines.last() else { return false };
    let document = lines.iter().enumerate().find_map(|(index, line)| {
        let word = line.split_once("<<")?.1.split([' ', '|', '>', ';']).next()?;
        Some((index, word.trim_matches(['\'', '"', '-'])))
    });
    match document {
        Some((index, word)) => lines.len() > index + 1 && *last == word,
        None => !last.ends_with('\\'),
    }
}

fn replace_word(line: &str, name: &str, value: &str) -> String {
    let mut replaced = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(name) {
        let is_part = |char: Option<char>| char.is_some_and(|char| char.is_alphanumeric() || char == '_');
        let within = is_part(before.chars().next_back()) || is_part(after.chars().next());
        replaced += before;
        replaced += if within { name } else { value };
        rest = after;
    }
    replaced + rest
}

/// Returns whether a command starts a tracker, which does not end by itself.
fn starts_tracker(command: &str) -> bool {
    if command.starts_with("cargo ") {
        return ["cargo run", "cargo run --release"]
            .contains(&command.split('#').next().unwrap_or_default().trim());
    }
    let is_setting = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name.starts_with("SHOAL_"));
    let mut words = command.split_whitespace().skip_while(is_setting);
    let is_shoal =
        words.next().is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == "shoal"));
    let first = words.next().unwrap_or_default();
    is_shoal
        && (first.is_empty()
            || first == "#"
            || first.starts_with("--") && first != "--help" && first != "--version")
}

/// A shell in which the commands of a page run one after another.
#[derive(Debug)]
pub struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    /// Starts bash by this command, for example within a namespace. Its folder is the one in which the commands run.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(mut bash: Command) -> Result<Self> {
        let mut child =
            bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start bash")?;
        let input = child.stdin.take().context("bash has an input")?;
        let output = child.stdout.take().context("bash has an output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            lines
                .map(|line| sender.send(String::from_utf8_lossy(&line).into_owned()))
                .take_while(Result::is_ok)
                .count()
        });
        Ok(Self { child, input, lines })
    }

    /// Does what a step of a page says.
    ///
    /// # Errors
    /// Returns an error with the output if the command fails, takes too long or prints something else.
    pub fn follow(&mut self, step: &Step) -> Result<()> {
        match &step.action {
            Action::Write { path, text } => {
                let quoted = quote(path);
                let folder = format!("mkdir -p \"$(dirname {quoted})\"");
                let mode = if text.starts_with("#!") { "755" } else { "644" };
                let write =
                    format!("{folder} && printf %s {} > {quoted} && chmod {mode} {quoted}", quote(text));
                self.succeed(&write)
            }
            Action::Check(text) => self
                .succeed(&format!("printf %s {} > .page.toml && shoal config check .page.toml", quote(text))),
            Action::Run { command, .. } if starts_tracker(command) => self.start_tracker(command),
            Action::Run { command, code, output } => {
                let (ended, printed) = self.run(command)?;
                ensure!(ended == *code, "exit code {ended} instead of {code}: {command}\n{printed}");
                let expected = output.as_ref().map_or(Ok(()), |expected| compare(expected, &printed));
                expected.with_context(|| format!("{command} printed:\n{printed}"))
            }
        }
    }

    /// Runs a command, and returns its exit code and everything that it has printed.
    ///
    /// # Errors
    /// Returns an error if it takes too long, or ends the shell.
    pub fn run(&mut self, command: &str) -> Result<(i32, String)> {
        let line = format!("eval {} </dev/null 2>&1; printf '\\n{END}%d\\n' $?", quote(command));
        writeln!(self.input, "{line}").context("the shell has ended")?;
        let mut printed = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.with_context(|| {
                format!("the command hangs, or has ended the shell: {command}\n{printed}")
            })?;
            if let Some(code) = line.strip_prefix(END) {
                // The line before is empty if the output ended with a line break.
                let text = printed.trim_end_matches('\n');
                return Ok((
                    code.parse()?,
                    if text.is_empty() { String::new() } else { format!("{text}\n") },
                ));
            }
            writeln!(printed, "{line}")?;
        }
    }

    fn succeed(&mut self, command: &str) -> Result<()> {
        let (code, printed) = self.run(command)?;
        ensure!(code == 0, "exit code {code}: {command}\n{printed}");
        Ok(())
    }

    /// Starts a tracker, in place of the one before, and waits until it serves.
    fn start_tracker(&mut self, command: &str) -> Result<()> {
        let command = if command.starts_with("cargo ") { "shoal" } else { command };
        self.succeed("if [ -n \"$tracker\" ]; then kill \"$tracker\"; wait \"$tracker\"; fi; :")?;
        // The settings in front of the program become arguments of `env`, so that the process is the tracker itself.
        let start = format!("( exec env {command}\n) > .tracker.log 2>&1 &\ntracker=$!");
        self.succeed(&start)?;
        let wait = "until grep -q ' ready' .tracker.log; do kill -0 \"$tracker\" || exit 1; sleep 0.02; done";
        let (code, printed) = self.run(&format!("( {wait} ) || {{ cat .tracker.log; false; }}"))?;
        if code != 0 {
            bail!("the tracker does not start: {command}\n{printed}");
        }
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a word for the shell that stands for this text.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Compares output with the lines that a page shows.
///
/// # Errors
/// Returns an error that names the first line that is missing.
pub fn compare(expected: &[String], printed: &str) -> Result<()> {
    let mut actual = printed.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let mut anywhere = false;
    for line in expected.iter().map(|line| line.trim_end()).filter(|line| !line.is_empty()) {
        if line == "…" {
            anywhere = true;
            continue;
        }
        let found = if anywhere {
            actual.any(|other| line_matches(line, other))
        } else {
            actual.next().is_some_and(|other| line_matches(line, other))
        };
        ensure!(found, "the page shows another line: {line}");
        anywhere = false;
    }
    let rest = actual.next();
    ensure!(anywhere || rest.is_none(), "the page does not show: {}", rest.unwrap_or_default());
    Ok(())
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, actual) = (words(expected), words(actual));
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title

```sh
one HASH   # remark
two \\
  more
cat > file <<'END'
text
END
cargo build
three # exit code 3
```

```console
$ four
line 1
…
$ five
```

- a list

  ```sh no-test it needs a card
  six
  ```

```toml
# /etc/shoal/shoal.toml
[state]
```

```sh
#!/bin/sh
# /etc/hook; with a remark
seven
```
";

    fn page() -> Page {
        Page::parse(Path::new("page.md"), PAGE, &[("HASH", "0123")]).unwrap()
    }

    #[test]
    fn a_page_becomes_steps() {
        let run = |command: &str, code, output: Option<&[&str]>| Action::Run {
            command: command.to_owned(),
            code,
            output: output.map(|lines| lines.iter().map(|&line| line.to_owned()).collect()),
        };
        let write = |path: &str, text: &str| Action::Write { path: path.to_owned(), text: text.to_owned() };
        let toml = "# /etc/shoal/shoal.toml\n[state]\n";
        let expected = [
            run("one 0123   # remark", 0, None),
            run("two \\\n  more", 0, None),
            run("cat > file <<'END'\ntext\nEND", 0, None),
            run("three # exit code 3", 3, None),
            run("four", 0, Some(&["line 1", "…"])),
            run("five", 0, None),
            write("/etc/shoal/shoal.toml", toml),
            Action::Check(toml.to_owned()),
            write("/etc/hook", "#!/bin/sh\n# /etc/hook; with a remark\nseven\n"),
        ];
        let page = page();
        let actions: Vec<_> = page.steps.iter().map(|step| step.action.clone()).collect();
        assert_eq!(actions, expected);
        assert_eq!(page.steps[0].line, 4);
        let left_out: Vec<_> =
            page.left_out.iter().map(|left| (&*left.text, left.reason.as_deref())).collect();
        assert_eq!(left_out, [("cargo build", None), ("six", Some("it needs a card"))]);
    }

    #[test]
    fn a_block_without_an_end_is_an_error() {
        assert!(Page::parse(Path::new("page.md"), "```sh\nls\n", &[]).is_err());
    }

    #[test]
    fn trackers_are_recognised() {
        for command in [
            "shoal",
            "cargo run --release",
            "A/shoal --config x",
            "SHOAL_A=1 shoal   # it serves",
            "shoal --set a=1",
        ] {
            assert!(starts_tracker(command), "{command}");
        }
        for command in [
            "shoal config",
            "shoal --version",
            "cargo run -p shoal-lab -- load",
            "echo shoal",
            "shoal-lab load",
        ] {
            assert!(!starts_tracker(command), "{command}");
        }
    }

    #[test]
    fn output_is_compared_up_to_blanks_and_dots() {
        let compare = |expected: &str, printed: &str| {
            let lines: Vec<String> = expected.lines().map(str::to_owned).collect();
            compare(&lines, printed).is_ok()
        };
        assert!(compare("a 1  b\nid …", "a  1 b\n\nid ffff\n"));
        assert!(compare("first\n…\nlast … end", "first\nsecond\nlast but one, the end\n"));
        assert!(compare("…", "anything\n"));
        assert!(!compare("a 1", "a 2\n"));
        assert!(!compare("a", "a\nb\n"));
        assert!(!compare("a\nb", "a\n"));
        assert!(!compare("a …x", "a y\n"));
    }

    #[test]
    fn a_shell_keeps_its_folder_and_tells_of_failures() {
        let folder = tempfile::tempdir().unwrap();
        let mut bash = Command::new("bash");
        bash.current_dir(folder.path());
        let mut shell = Shell::start(bash).unwrap();
        let step = |action| Step { line: 1, action };
        let run = |command: &str, code, output: Option<&str>| {
            let output = output.map(|line| vec![line.to_owned()]);
            step(Action::Run { command: command.to_owned(), code, output })
        };
        shell
            .follow(&run("mkdir inner && cd inner && printf 'it'\"'\"'s %s' here", 0, Some("it's here")))
            .unwrap();
        let script =
            Action::Write { path: "deep/script".to_owned(), text: "#!/bin/sh\npwd; exit 3\n".to_owned() };
        shell.follow(&step(script)).unwrap();
        shell.follow(&run("deep/script", 3, Some("…/inner"))).unwrap();
        assert!(shell.follow(&run("false", 0, None)).is_err());
        assert!(shell.follow(&run("cat", 0, Some("something"))).is_err(), "its input is empty");
        assert!(shell.follow(&run("exit", 0, None)).is_err());
    }
}
