//! The files beside a transcript that is cut.

use super::*;

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match path.is_dir() {
            true => names.extend(below(&path).into_iter().map(|below| format!("{name}/{below}"))),
            false => names.push(name),
        }
    }
    names.sort();
    names
}

/// A result that was put into a file, as the agent writes it.
fn persisted(uuid: &str, parent: &str, path: &str) -> String {
    let said = format!(
        "<persisted-output>\nOutput too large (9 KB). Full output saved to: {path}\n\nPreview:\n{path}"
    );
    json!({"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": OLD,
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": uuid, "content": said}]},
        "toolUseResult": {"stdout": path, "persistedOutputPath": path}})
    .to_string()
}

#[test]
fn the_files_that_the_kept_part_names_come_along() {
    const OTHER: &str = "44444444-4444-4444-8444-444444444444";
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path();
    let at = |session: &str, name: &str| format!("{}/{session}/tool-results/{name}", project.display());
    let of_subagent = json!({"type": "user", "isSidechain": true, "uuid": "s1", "sessionId": OLD, "agentId": "x1",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": format!("<persisted-output>\nsaved to: {}\n", at(OLD, "of-x1.txt"))}]},
        "toolUseResult": {"agentId": "x2"}});
    let lines = [
        chain("u1", "", "user", "one"),
        persisted("r1", "u1", &at(OLD, "a.txt")),
        // In the folder of the session that this one was forked from, under the same name.
        persisted("r2", "r1", &at(OTHER, "a.txt")),
        persisted("r3", "r2", &at(OLD, "gone.txt")),
        json!({"type": "user", "uuid": "r4", "parentUuid": "r3", "sessionId": OLD, "toolUseResult": {"agentId": "x1"}}).to_string(),
        chain("a1", "r4", "assistant", "done"),
        persisted("r5", "a1", &at(OLD, "later.txt")),
        json!({"type": "content-replacement", "sessionId": OLD, "replacements": [{"kind": "tool-result", "toolUseId": "r1",
            "replacement": format!("<persisted-output>\nsaved to: {}\n", at(OLD, "replaced.txt"))}]})
        .to_string(),
    ];
    // As agents write it, the type first.
    let mut lines = lines.to_vec();
    let replaced: Value = serde_json::from_str(&lines[7]).expect("a record");
    lines[7] = format!(
        r#"{{"type":"content-replacement","sessionId":"{OLD}","replacements":{}}}"#,
        replaced["replacements"]
    );
    let source = project.join(format!("{OLD}.jsonl"));
    fs::write(&source, lines.join("\n") + "\n").expect("a file");
    for (name, text) in [
        ("tool-results/a.txt", "a"),
        ("tool-results/later.txt", "later"),
        ("tool-results/of-x1.txt", "of x1"),
        ("tool-results/replaced.txt", "replaced"),
        ("subagents/agent-x1.jsonl", &format!("{of_subagent}\n{{\"torn")),
        ("subagents/agent-x1.meta.json", "{}"),
        ("subagents/agent-x2.jsonl", "{}\n"),
        ("subagents/agent-unnamed.jsonl", "{}\n"),
    ] {
        put(project, &format!("{OLD}/{name}"), text);
    }
    put(project, &format!("{OTHER}/tool-results/a.txt"), "the other's");
    let before = below(project);
    let disk = Disk::of(project);
    let copied = records(&cut_at(&source, NEW, "a1"));
    // Those of the files' folder and of the transcript behind it.
    assert_eq!(disk.check_lasts("a cut with files"), 2);
    let behind = &disk.names()[1];
    assert!(
        behind.to.ends_with(format!("{NEW}.jsonl"))
            && behind
                .lost
                .iter()
                .all(|path| path.starts_with(behind.from.file_name().expect("a name"))),
        "a transcript whose files would be lost: {behind:?}"
    );
    let own = project.join(NEW);
    assert_eq!(
        below(&own),
        [
            "subagents/agent-x1.jsonl",
            "subagents/agent-x1.meta.json",
            "subagents/agent-x2.jsonl",
            &format!("tool-results/{OTHER}-a.txt"),
            "tool-results/a.txt",
            "tool-results/of-x1.txt",
            "tool-results/replaced.txt",
        ]
    );
    let others = format!("{NEW}/tool-results/{OTHER}-a.txt");
    for (number, path) in [
        (1, at(NEW, "a.txt")),
        (2, format!("{}/{others}", project.display())),
    ] {
        let said = copied[number]["message"]["content"][0]["content"]
            .as_str()
            .expect("a text");
        assert!(said.contains(&format!("saved to: {path}\n")), "{said}");
        assert_eq!(
            copied[number]["toolUseResult"]["persistedOutputPath"],
            path.as_str()
        );
    }
    assert_eq!(
        fs::read_to_string(project.join(others)).expect("a file"),
        "the other's"
    );
    assert_eq!(
        copied[3]["toolUseResult"]["persistedOutputPath"],
        at(OLD, "gone.txt")
    );
    let replaced = copied[6]["replacements"][0]["replacement"]
        .as_str()
        .expect("a text");
    assert!(replaced.contains(&at(NEW, "replaced.txt")), "{replaced}");
    let said = records(&own.join("subagents/agent-x1.jsonl"));
    assert_eq!((said.len(), &said[0]["sessionId"]), (1, &Value::from(NEW)));
    assert!(said[0].to_string().contains(&at(NEW, "of-x1.txt")));

    // It stands when the other sessions are deleted.
    let kept: Vec<String> = below(&own);
    for gone in [OLD, OTHER] {
        fs::remove_dir_all(project.join(gone)).expect("a folder");
    }
    fs::remove_file(&source).expect("the source");
    let copy = project.join(format!("{NEW}.jsonl"));
    let found = reading::check(&copy).expect("a check").findings;
    let missing = found
        .iter()
        .filter(|found| found.kind == bridge_protocol::check::FindingKind::MissingSideFile);
    assert_eq!(missing.count(), 1, "but for what was gone before");
    let second = cut_at(&copy, NEWER, copied[5]["uuid"].as_str().expect("a uuid"));
    assert_eq!(below(&second.with_extension("")).len(), kept.len());
    assert_eq!(before.len(), 10);
}

#[test]
fn what_a_fork_of_the_agents_own_names_can_be_brought_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path();
    let at = |session: &str, name: &str| format!("{}/{session}/tool-results/{name}", project.display());
    let lines = [
        chain("u1", "", "user", "one"),
        persisted("r1", "u1", &at(OLD, "a.txt")),
        persisted("r2", "r1", &at(OLD, "b.txt")),
        persisted("r3", "r2", &at(NEW, "own.txt")),
        json!({"type": "user", "uuid": "r4", "parentUuid": "r3", "toolUseResult": {"agentId": "x1"}})
            .to_string(),
    ];
    let fork = project.join(format!("{NEW}.jsonl"));
    let text = lines.join("\n") + "\n";
    fs::write(&fork, &text).expect("a file");
    put(project, &format!("{OLD}/tool-results/a.txt"), "a");
    put(project, &format!("{OLD}/tool-results/b.txt"), "b");
    put(project, &format!("{OLD}/subagents/agent-x1.jsonl"), "{}\n");
    put(project, &format!("{NEW}/tool-results/own.txt"), "own");
    put(
        project,
        &format!("{NEW}/tool-results/b.txt"),
        "its own of this name",
    );
    let disk = Disk::of(project);
    for _ in 0..2 {
        bring_files(&fork).expect("the files");
        disk.check_lasts("files of a fork");
        let own = project.join(NEW);
        let expected = ["a.txt", "b.txt", "own.txt"].map(|name| format!("tool-results/{name}"));
        assert_eq!(
            below(&own),
            [&["subagents/agent-x1.jsonl".to_owned()][..], &expected].concat()
        );
        let kept = fs::read_to_string(own.join("tool-results/b.txt")).expect("a file");
        assert_eq!(kept, "its own of this name");
        assert_eq!(fs::read_to_string(&fork).expect("the fork"), text);
        assert_eq!(fs::read_dir(project).expect("the folder").count(), 3);
    }
}

#[test]
fn files_of_a_cut_that_fails_are_not_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path();
    let path = format!("{}/{OLD}/tool-results/a.txt", project.display());
    let lines = [
        chain("u1", "", "user", "one"),
        persisted("r1", "u1", &path),
        chain("a1", "r1", "assistant", "done"),
    ];
    let source = project.join(format!("{OLD}.jsonl"));
    fs::write(&source, lines.join("\n") + "\n").expect("a file");
    put(project, &format!("{OLD}/tool-results/a.txt"), "a");
    let before = below(project);
    let index = reading::index(&source).expect("an index");
    // What was noted of the last record does not hold any more, behind the one that names a file.
    fs::write(&source, lines.join("\n").replace("\"a1\"", "\"a2\"") + "\n").expect("the source");
    let failed = cut(&source, &index, project, NEW, "a1");
    assert!(matches!(failed, Err(TranscriptError::Io { .. })));
    assert_eq!(below(project), before);
    // Somebody else's folder has the name.
    fs::write(&source, lines.join("\n") + "\n").expect("the source");
    put(project, &format!("{NEW}/theirs"), "kept");
    let failed = cut(&source, &index, project, NEW, "a1");
    assert!(matches!(failed, Err(TranscriptError::Io { .. })));
    assert_eq!(below(&project.join(NEW)), ["theirs"]);
    assert_eq!(below(project).len(), before.len() + 1);
}
