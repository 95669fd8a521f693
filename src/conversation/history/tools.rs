//! How a tool call is shown: its title, kind, content and locations, as the adapters of Claude and Codex show it live.
//!
//! The tools' names are enough to distinguish the agents. Measured with claude-agent-acp 0.101.0 and codex-acp 2.6.0; an
//! unknown tool is shown by its name. Pure.

use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

/// A tool call as it is shown.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolCallFacts {
    /// One line, or a whole command.
    pub(super) title: String,
    /// ACP's kind.
    pub(super) kind: &'static str,
    /// ACP's content: diffs, and texts that the user reads.
    pub(super) content: Vec<Value>,
    /// The files that the call names.
    pub(super) locations: Vec<Value>,
}

/// A tool call that was shown, as far as its result depends on it.
#[derive(Debug)]
pub(super) struct ShownCall {
    pub(super) name: String,
    /// ACP's kind.
    pub(super) kind: &'static str,
}

/// Wraps one text as ACP content.
pub(super) fn text_content(text: &str) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": text}})
}

/// The entries of the plan that a call writes; `None` if it writes no plan. Entries that ACP cannot express are left out, such
/// as cancelled ones.
pub(super) fn plan_entries(name: &str, input: &Value) -> Option<Vec<Value>> {
    let (entries, content) = match name {
        "TodoWrite" => ("todos", "content"),
        "update_plan" => ("plan", "step"),
        _ => return None,
    };
    let entry = |entry: &Value| {
        let status = match &entry["status"] {
            Value::Null => "pending",
            status => status.as_str()?,
        };
        let active = entry["activeForm"].as_str().filter(|_| status == "in_progress");
        let content = active.or_else(|| entry[content].as_str())?;
        let is_known = matches!(status, "pending" | "in_progress" | "completed");
        is_known.then(|| json!({"content": content, "status": status, "priority": "medium"}))
    };
    Some(input[entries].as_array()?.iter().filter_map(entry).collect())
}

/// Returns how a call is shown. `cwd` is the folder that the session runs in.
pub(super) fn tool_call_facts(name: &str, input: &Value, cwd: &str) -> ToolCallFacts {
    let call = ToolCall { name, input, cwd };
    match name {
        "Bash" | "PowerShell" => ToolCallFacts {
            content: call.texts("description"),
            ..plain(call.word("command").unwrap_or("Terminal").to_owned(), "execute")
        },
        _ if is_codex_shell(name) => call.command_facts(),
        "apply_patch" => {
            let patch = input.as_str().or_else(|| call.word("input"));
            patch_facts(patch.unwrap_or_default(), cwd)
        }
        "Read" => call.read_facts(),
        "Edit" | "MultiEdit" => call.edit_facts(),
        // The built-in agent's own tool is called `write`.
        "Write" | "write" => call.write_facts(),
        "Glob" => {
            let parts = ["path", "pattern"].into_iter();
            let parts = parts.filter_map(|member| call.word(member));
            let title = parts.fold("Find".to_owned(), |title, part| format!("{title} `{part}`"));
            ToolCallFacts {
                locations: call.locations(),
                ..plain(title, "search")
            }
        }
        "Grep" => plain(grep_command(input, call.file()), "search"),
        "WebFetch" => ToolCallFacts {
            content: call.texts("prompt"),
            ..plain(titled("Fetch", call.word("url").map(str::to_owned)), "fetch")
        },
        "WebSearch" => {
            let query = call.word("query").map(|query| format!("Search \"{query}\""));
            plain(query.unwrap_or_else(|| "Web search".to_owned()), "fetch")
        }
        "web_search_call" => {
            let query = input["action"]["query"].as_str();
            let query = query.or_else(|| call.word("query"));
            plain(titled_with_colon("Web search", query), "search")
        }
        "view_image" => ToolCallFacts {
            locations: call.locations(),
            ..plain(titled("View Image", call.file().map(str::to_owned)), "read")
        },
        "Task" | "Agent" => ToolCallFacts {
            content: call.texts("prompt"),
            ..plain(call.word("description").unwrap_or("Task").to_owned(), "think")
        },
        "TaskCreate" => plain(titled_with_colon("Create task", call.word("subject")), "think"),
        "TaskUpdate" => plain(titled_with_colon("Update task", call.word("subject")), "think"),
        "TaskList" => plain("List tasks".to_owned(), "think"),
        "TaskGet" => plain("Get task".to_owned(), "think"),
        "AskUserQuestion" => call.question_facts(),
        "EnterPlanMode" => plain(name.to_owned(), "switch_mode"),
        "ExitPlanMode" => ToolCallFacts {
            content: call.texts("plan"),
            ..plain("Approve Plan".to_owned(), "switch_mode")
        },
        "Skill" => plain(titled_with_colon("Load skill", call.word("skill")), "other"),
        // An unknown tool is shown by its name.
        _ => plain(name.to_owned(), "other"),
    }
}

/// Whether this is a tool of Codex that runs a command.
fn is_codex_shell(name: &str) -> bool {
    matches!(
        name,
        "exec_command" | "shell" | "shell_command" | "local_shell" | "container.exec"
    )
}

/// A tool call without contents or locations.
fn plain(title: String, kind: &'static str) -> ToolCallFacts {
    ToolCallFacts {
        title,
        kind,
        ..ToolCallFacts::default()
    }
}

/// What a tool does and to what, if that is known.
fn titled(what: &str, of: Option<String>) -> String {
    of.map_or_else(|| what.to_owned(), |of| format!("{what} {of}"))
}

/// What a tool does and to what after a colon, if that is known.
fn titled_with_colon(what: &str, of: Option<&str>) -> String {
    of.map_or_else(|| what.to_owned(), |of| format!("{what}: {of}"))
}

/// A call of a tool.
struct ToolCall<'a> {
    name: &'a str,
    input: &'a Value,
    cwd: &'a str,
}

impl<'a> ToolCall<'a> {
    /// A text of the input that is not empty.
    fn word(&self, member: &str) -> Option<&'a str> {
        self.input[member].as_str().filter(|word| !word.is_empty())
    }

    fn texts(&self, member: &str) -> Vec<Value> {
        self.word(member).map(text_content).into_iter().collect()
    }

    fn file(&self) -> Option<&'a str> {
        self.word("file_path").or_else(|| self.word("path"))
    }

    fn shown_file(&self) -> Option<String> {
        self.file().map(|path| display_path(path, self.cwd))
    }

    fn locations(&self) -> Vec<Value> {
        let location = self.file().map(|path| json!({"path": path}));
        location.into_iter().collect()
    }

    fn command_facts(&self) -> ToolCallFacts {
        let folder = absolute_path(self.word("workdir").unwrap_or_default(), self.cwd);
        let command = command_words(self.input.get("cmd").unwrap_or(&self.input["command"]));
        if let [program, patch] = command.as_slice()
            && program == "apply_patch"
        {
            return patch_facts(patch, &folder);
        }
        let script = without_shell(command);
        if let Some(patch) = applied_patch(&script) {
            return patch_facts(patch, &folder);
        }
        match read_file(&script).map(|path| absolute_path(path, &folder)) {
            Some(path) => ToolCallFacts {
                locations: vec![json!({"path": path})],
                ..plain(format!("Read file '{path}'"), "read")
            },
            None => plain(script, "execute"),
        }
    }

    fn question_facts(&self) -> ToolCallFacts {
        let questions = self.input["questions"].as_array();
        let questions = questions.into_iter().flatten();
        let questions: Vec<&str> = questions.filter_map(|asked| asked["question"].as_str()).collect();
        let title = match questions.as_slice() {
            [only] if !only.is_empty() => only,
            _ => "Asking for your input",
        };
        ToolCallFacts {
            content: questions.iter().map(|question| text_content(question)).collect(),
            ..plain(title.to_owned(), "other")
        }
    }

    fn read_facts(&self) -> ToolCallFacts {
        let offset = self.input["offset"].as_u64();
        let first = offset.unwrap_or(1).max(1);
        let part = match self.input["limit"].as_u64().filter(|limit| *limit > 0) {
            Some(limit) => format!(" ({first} - {})", first.saturating_add(limit - 1)),
            None => offset.map_or_else(String::new, |_| format!(" (from line {first})")),
        };
        let file = self.shown_file();
        let location = self.file().map(|path| json!({"path": path, "line": first}));
        ToolCallFacts {
            locations: location.into_iter().collect(),
            ..plain(
                format!("Read {}{part}", file.as_deref().unwrap_or("File")),
                "read",
            )
        }
    }

    fn edit_facts(&self) -> ToolCallFacts {
        let edits = match self.input["edits"].as_array() {
            Some(edits) => edits.iter().collect(),
            None => vec![self.input],
        };
        let diffs = edits.into_iter().filter_map(|edit| {
            let side = |member: &str| edit[member].as_str().filter(|text| !text.is_empty());
            let (old, new) = (side("old_string"), side("new_string"));
            old.or(new)?;
            Some(diff_content(self.file()?, old, new.unwrap_or_default()))
        });
        ToolCallFacts {
            content: diffs.collect(),
            locations: self.locations(),
            ..plain(titled("Edit", self.shown_file()), "edit")
        }
    }

    fn write_facts(&self) -> ToolCallFacts {
        let content = ["content", "file_text", "file_content"]
            .into_iter()
            .find_map(|name| self.input[name].as_str());
        let title = match (self.name, self.file()) {
            ("write", Some(path)) => path.to_owned(),
            _ => titled("Write", self.shown_file()),
        };
        let diff = self
            .file()
            .map(|path| diff_content(path, None, content.unwrap_or_default()));
        ToolCallFacts {
            content: diff.into_iter().collect(),
            locations: self.locations(),
            ..plain(title, "edit")
        }
    }
}

/// The content of a result; empty if the call itself shows what was done.
pub(super) fn result_content(call: &ShownCall, output: &str, failed: bool) -> Vec<Value> {
    let ShownCall { name, kind } = call;
    let is_codex_shell = is_codex_shell(name) || name == "write_stdin";
    let output = match (is_codex_shell, *kind) {
        (false, _) => output,
        // The tool that applies patches adds a header too.
        (true, "edit") => without_header(without_header(output)),
        (true, _) => without_header(output),
    };
    if output.trim().is_empty() {
        return Vec::new();
    }
    let shown = match (name.as_str(), *kind) {
        (_, "edit") | ("Skill" | "ExitPlanMode" | "view_image", _) if !failed => return Vec::new(),
        (_, "read") if is_codex_shell && !failed => return Vec::new(),
        _ if is_codex_shell => code_block("console", output.trim_end()),
        _ if failed => code_block("", output),
        ("Bash" | "PowerShell", _) => code_block("console", output.trim_end()),
        ("Read", _) => code_block("", output),
        _ => output.to_owned(),
    };
    vec![text_content(&shown)]
}

/// Formats a text as a code block, with a fence longer than those in the text.
fn code_block(language: &str, text: &str) -> String {
    let mut fence = "```".to_owned();
    for line in text.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        if ticks >= fence.len() {
            fence = "`".repeat(ticks + 1);
        }
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

fn diff_content(path: &str, old: Option<&str>, new: &str) -> Value {
    json!({"type": "diff", "path": path, "oldText": old, "newText": new})
}

/// A path for display: relative if it is below the session's folder.
fn display_path(path: &str, cwd: &str) -> String {
    let below = Path::new(path).strip_prefix(cwd).ok();
    let below = below.and_then(Path::to_str).filter(|below| !below.is_empty());
    below.unwrap_or(path).to_owned()
}

/// The equivalent command line.
fn grep_command(input: &Value, path: Option<&str>) -> String {
    let mut line = "grep".to_owned();
    let is_set = |name: &str| input[name] == true || input[name] == "true";
    for flag in ["-i", "-n"] {
        if is_set(flag) {
            line += &format!(" {flag}");
        }
    }
    for flag in ["-A", "-B", "-C"] {
        if let Some(lines) = input[flag].as_u64() {
            line += &format!(" {flag} {lines}");
        }
    }
    match input["output_mode"].as_str() {
        Some("files_with_matches") => line += " -l",
        Some("count") => line += " -c",
        Some(_) => {}
        None if is_set("-l") => line += " -l",
        None if is_set("-c") => line += " -c",
        None => {}
    }
    if let Some(limit) = input["head_limit"].as_u64() {
        line += &format!(" | head -{limit}");
    }
    if let Some(glob) = input["glob"].as_str() {
        line += &format!(" --include=\"{glob}\"");
    }
    if let Some(kind) = input["type"].as_str() {
        line += &format!(" --type={kind}");
    }
    if is_set("multiline") {
        line += " -P";
    }
    if let Some(pattern) = input["pattern"].as_str() {
        line += &format!(" \"{pattern}\"");
    }
    path.map_or(line.clone(), |path| format!("{line} {path}"))
}

/// A command as it was given: one text or a list of words.
fn command_words(command: &Value) -> Vec<String> {
    match command {
        Value::String(command) => vec![command.clone()],
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// Joins the words of a command, without the shell that runs it.
fn without_shell(mut words: Vec<String>) -> String {
    let is_shell = |word: &String| matches!(word.rsplit('/').next(), Some("bash" | "zsh" | "sh"));
    if let [shell, flag, _] = words.as_slice()
        && is_shell(shell)
        && flag.starts_with('-')
    {
        return words.pop().unwrap_or_default();
    }
    match words.is_empty() {
        true => "Run command".to_owned(),
        false => words.join(" "),
    }
}

/// The patch in a script that does nothing but apply it.
fn applied_patch(script: &str) -> Option<&str> {
    let begin = script.find("*** Begin Patch\n")?;
    let end = script.rfind("\n*** End Patch")?;
    let (command, after) = (script.get(..begin)?, script.get(end..)?);
    let is_plain = |letter: char| letter.is_alphanumeric() || "'\"_-".contains(letter);
    let word = command
        .strip_prefix("apply_patch <<")
        .and_then(|rest| rest.strip_suffix('\n'));
    let is_only = word.is_some_and(|word| word.trim().chars().all(is_plain));
    // The last line ends the text that the shell passes on.
    let is_last = after.trim().lines().count() <= 2;
    script.get(begin..end).filter(|_| is_only && is_last)
}

/// The file that a script only prints.
fn read_file(script: &str) -> Option<&str> {
    let path = script.strip_prefix("cat ")?;
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@%,:=".contains(letter);
    Some(path).filter(|path| !path.is_empty() && !path.starts_with('-') && path.chars().all(is_plain))
}

/// The output of a command, without the header that Codex adds for the model.
fn without_header(output: &str) -> &str {
    const HEADER_LINES: usize = 8;
    let is_header = ["Chunk ID: ", "Wall time: ", "Exit code: "]
        .iter()
        .any(|begin| output.starts_with(begin));
    let end = output.match_indices('\n').take(HEADER_LINES);
    let mut ends = end.filter(|(at, _)| output[..*at].ends_with("\nOutput:"));
    match ends.next().filter(|_| is_header) {
        Some((at, _)) => &output[at + 1..],
        None => output,
    }
}

/// A patch in Codex's form, as one diff for each hunk.
fn patch_facts(patch: &str, cwd: &str) -> ToolCallFacts {
    let mut hunks = PatchHunks::default();
    for line in patch.lines() {
        let operation = ["*** Add File: ", "*** Update File: ", "*** Delete File: "]
            .into_iter()
            .find_map(|begin| Some((begin, line.strip_prefix(begin)?)));
        if let Some((begin, path)) = operation {
            hunks.finish_hunk();
            hunks.path = Some(absolute_path(path, cwd));
            hunks.is_new = begin.contains("Add");
            hunks.is_deleted = begin.contains("Delete");
        } else if let Some(path) = line.strip_prefix("*** Move to: ") {
            hunks.path = Some(absolute_path(path, cwd));
        } else if line.starts_with("@@") {
            hunks.finish_hunk();
        } else if !line.starts_with("***") {
            hunks.add_line(line);
        }
    }
    hunks.finish_hunk();
    ToolCallFacts {
        title: "Editing files".to_owned(),
        kind: "edit",
        content: hunks.diffs,
        locations: Vec::new(),
    }
}

/// The hunks of a patch so far.
#[derive(Default)]
struct PatchHunks {
    diffs: Vec<Value>,
    path: Option<String>,
    /// Whether the file is new.
    is_new: bool,
    /// Whether the file is deleted; the patch then does not contain its text.
    is_deleted: bool,
    old: String,
    new: String,
}

impl PatchHunks {
    fn add_line(&mut self, line: &str) {
        let (sign, text) = line.split_at_checked(1).unwrap_or((" ", ""));
        if sign != "+" {
            self.old.extend([text, "\n"]);
        }
        if sign != "-" {
            self.new.extend([text, "\n"]);
        }
    }

    fn finish_hunk(&mut self) {
        let (old, new) = (std::mem::take(&mut self.old), std::mem::take(&mut self.new));
        let is_hunk = std::mem::take(&mut self.is_deleted) || !old.is_empty() || !new.is_empty();
        if let Some(path) = self.path.as_deref().filter(|_| is_hunk) {
            let old = Some(old.as_str()).filter(|_| !self.is_new);
            self.diffs.push(diff_content(path, old, &new));
        }
    }
}

/// The absolute path of a file that a patch names.
fn absolute_path(path: &str, cwd: &str) -> String {
    let parts = Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir);
    let path: PathBuf = Path::new(cwd).join(parts.collect::<PathBuf>());
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CWD: &str = "/home/u/project";

    #[test]
    fn each_tool_is_shown_as_its_adapter_shows_it() {
        let table = [
            (
                "Bash",
                json!({"command": "make\ntest", "description": "d"}),
                "make\ntest",
                "execute",
            ),
            ("Bash", json!({}), "Terminal", "execute"),
            ("exec_command", json!({"cmd": "echo one"}), "echo one", "execute"),
            (
                "shell",
                json!({"command": ["/bin/bash", "-lc", "ls | wc"]}),
                "ls | wc",
                "execute",
            ),
            (
                "local_shell",
                json!({"command": ["ls", "-l"]}),
                "ls -l",
                "execute",
            ),
            (
                "Read",
                json!({"file_path": "/home/u/project/src/a.rs"}),
                "Read src/a.rs",
                "read",
            ),
            (
                "Read",
                json!({"file_path": "/etc/x", "offset": 5, "limit": 3}),
                "Read /etc/x (5 - 7)",
                "read",
            ),
            (
                "Read",
                json!({"file_path": "/etc/x", "offset": 5}),
                "Read /etc/x (from line 5)",
                "read",
            ),
            (
                "Edit",
                json!({"file_path": "/home/u/project/a"}),
                "Edit a",
                "edit",
            ),
            (
                "Write",
                json!({"file_path": "/home/u/other/a"}),
                "Write /home/u/other/a",
                "edit",
            ),
            (
                "Glob",
                json!({"path": "src", "pattern": "*.rs"}),
                "Find `src` `*.rs`",
                "search",
            ),
            (
                "Grep",
                json!({"pattern": "x", "-i": true, "-A": 2, "output_mode": "count", "glob": "*.c", "path": "src"}),
                "grep -i -A 2 -c --include=\"*.c\" \"x\" src",
                "search",
            ),
            (
                "WebFetch",
                json!({"url": "x:y", "prompt": "p"}),
                "Fetch x:y",
                "fetch",
            ),
            ("WebSearch", json!({"query": "q"}), "Search \"q\"", "fetch"),
            (
                "web_search_call",
                json!({"action": {"query": "q"}}),
                "Web search: q",
                "search",
            ),
            (
                "Task",
                json!({"description": "look", "prompt": "p"}),
                "look",
                "think",
            ),
            (
                "ExitPlanMode",
                json!({"plan": "p"}),
                "Approve Plan",
                "switch_mode",
            ),
            (
                "view_image",
                json!({"path": "/a.png"}),
                "View Image /a.png",
                "read",
            ),
            ("mcp__files__list", json!({}), "mcp__files__list", "other"),
        ];
        for (name, input, title, kind) in table {
            let facts = tool_call_facts(name, &input, CWD);
            assert_eq!(
                (facts.title.as_str(), facts.kind),
                (title, kind),
                "{name} {input}"
            );
        }
    }

    #[test]
    fn edits_of_each_form_are_diffs() {
        let of = |old: Value, new: &str, path: &str| json!({"type": "diff", "path": path, "oldText": old, "newText": new});
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** Update File: ./src/a.rs\n@@ fn a\n keep\n-old\n+new\n@@\n-x\n\
                     *** Delete File: /gone\n*** End Patch";
        let patched = vec![
            of(Value::Null, "one\ntwo\n", "/home/u/project/new.txt"),
            of(json!("keep\nold\n"), "keep\nnew\n", "/home/u/project/src/a.rs"),
            of(json!("x\n"), "", "/home/u/project/src/a.rs"),
            of(json!(""), "", "/gone"),
        ];
        let table = [
            (
                "Edit",
                json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
                vec![of(json!("x"), "y", "/a")],
            ),
            (
                "MultiEdit",
                json!({"file_path": "/a", "edits": [{"old_string": "x", "new_string": ""}, {"new_string": "z"}]}),
                vec![of(json!("x"), "", "/a"), of(Value::Null, "z", "/a")],
            ),
            (
                "Write",
                json!({"file_path": "/a", "content": "text"}),
                vec![of(Value::Null, "text", "/a")],
            ),
            ("apply_patch", json!(patch), patched.clone()),
            ("shell", json!({"command": ["apply_patch", patch]}), patched),
        ];
        for (name, input, diffs) in table {
            let facts = tool_call_facts(name, &input, CWD);
            assert_eq!((facts.kind, facts.content), ("edit", diffs), "{name}");
        }
    }

    #[test]
    fn a_plan_is_no_call() {
        let todo = json!({"todos": [
            {"content": "a", "activeForm": "doing a", "status": "in_progress"},
            {"content": "b", "activeForm": "doing b", "status": "pending"},
        ]});
        let entry =
            |content: &str, status: &str| json!({"content": content, "status": status, "priority": "medium"});
        let expected = vec![entry("doing a", "in_progress"), entry("b", "pending")];
        assert_eq!(plan_entries("TodoWrite", &todo), Some(expected));
        let steps = json!({"plan": [{"step": "a", "status": "completed"}]});
        assert_eq!(
            plan_entries("update_plan", &steps),
            Some(vec![entry("a", "completed")])
        );
        assert_eq!(plan_entries("Bash", &todo), None);
    }

    #[test]
    fn a_result_shows_what_the_call_does_not() {
        let header = "Chunk ID: 1\nWall time: 0.05 seconds\nProcess exited with code 0\nOutput:\none\n";
        let table = [
            ("Bash", "one\n", false, Some("```console\none\n```")),
            ("Bash", "exit 1", true, Some("```\nexit 1\n```")),
            ("Bash", " \n", false, None),
            ("exec_command", header, false, Some("```console\none\n```")),
            ("Read", "a\n```\nb", false, Some("````\na\n```\nb\n````")),
            ("Edit", "done", false, None),
            ("Edit", "no such text", true, Some("```\nno such text\n```")),
            ("look", header, false, Some(header)),
        ];
        for (name, output, failed, shown) in table {
            let call = ShownCall {
                name: name.to_owned(),
                kind: tool_call_facts(name, &json!({}), CWD).kind,
            };
            let expected: Vec<Value> = shown.map(text_content).into_iter().collect();
            assert_eq!(result_content(&call, output, failed), expected, "{name} {output}");
        }
    }
}
