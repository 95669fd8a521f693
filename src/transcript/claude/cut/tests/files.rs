//! Cuts of transcripts with side files.

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
