use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::files::durable::tests::Disk;
use crate::transcript::copy::{create, create_first, remove_copy, rename_if_free};
use crate::transcript::tests::{NEW, OLD, chain, names, transcript};

#[test]
fn only_the_sessions_own_id_is_replaced() {
    let lines = [
        // The id in a text, in a nested member, of another session, escaped, with odd spacing and numbers.
        format!(
            r#"{{"a": 1.0e0 ,"sessionId" : "{OLD}" ,"text":"sessionId {OLD}","n":{{"sessionId":"{OLD}"}}}}"#
        ),
        r#"{"sessionId":"another","big":12345678901234567890.10}"#.to_owned(),
        format!(r#"{{"sessionId":"\u0031{}"}}"#, &OLD[1..]),
        "not JSON".to_owned(),
        String::new(),
        "{\"type\":\"user\"}\r".to_owned(),
    ];
    let mut content = lines.join("\n").into_bytes();
    content.extend_from_slice(b"\n{\"bad\":\"\x01\"}\n");
    content.extend_from_slice(b"{\"bytes\":\"\xFF\xFE\",\"sessionId\":\"");
    content.extend_from_slice(OLD.as_bytes());
    content.extend_from_slice(b"\"}\n");
    let (folder, source) = transcript(&content);

    let copy = copy_as(&source, folder.path(), NEW).expect("a copy");
    assert_eq!(copy, folder.path().join(format!("{NEW}.jsonl")));
    let mut expected = [
        format!(
            r#"{{"a": 1.0e0 ,"sessionId" : "{NEW}" ,"text":"sessionId {OLD}","n":{{"sessionId":"{OLD}"}}}}"#
        ),
        lines[1].clone(),
        format!(r#"{{"sessionId":"{NEW}"}}"#),
        lines[3].clone(),
        lines[4].clone(),
        lines[5].clone(),
    ]
    .join("\n")
    .into_bytes();
    expected.extend_from_slice(b"\n{\"bad\":\"\x01\"}\n");
    expected.extend_from_slice(b"{\"bytes\":\"\xFF\xFE\",\"sessionId\":\"");
    expected.extend_from_slice(NEW.as_bytes());
    expected.extend_from_slice(b"\"}\n");
    assert_eq!(
        String::from_utf8_lossy(&fs::read(&copy).expect("the copy")),
        String::from_utf8_lossy(&expected)
    );
    assert_eq!(
        fs::read(&source).expect("the source"),
        content,
        "the source is untouched"
    );
    assert_eq!(
        names(folder.path()),
        [format!("{OLD}.jsonl"), format!("{NEW}.jsonl")]
    );
}

#[test]
fn a_byte_order_mark_does_not_move_the_place() {
    let (folder, source) = transcript(format!("\u{feff}{{\"sessionId\":\"{OLD}\"}}\n").as_bytes());
    let copy = copy_as(&source, folder.path(), NEW).expect("a copy");
    assert_eq!(
        fs::read_to_string(copy).expect("the copy"),
        format!("\u{feff}{{\"sessionId\":\"{NEW}\"}}\n")
    );
}

#[test]
fn a_torn_last_line_is_dropped_and_a_whole_one_is_ended() {
    let (folder, source) = transcript(b"{\"a\":1}\n{\"b\":");
    assert_eq!(
        fs::read(copy_as(&source, folder.path(), NEW).expect("a copy")).expect("the copy"),
        b"{\"a\":1}\n"
    );
    let (folder, source) = transcript(b"{\"a\":1}\n{\"b\":2}");
    assert_eq!(
        fs::read(copy_as(&source, folder.path(), NEW).expect("a copy")).expect("the copy"),
        b"{\"a\":1}\n{\"b\":2}\n"
    );
}

#[test]
fn a_line_that_is_too_long_to_be_held_is_copied_and_repaired_as_it_is() {
    let long = vec![b'x'; LINE_LIMIT_BYTES + 1];
    let text = |id: &str| {
        let [prompt, reply] = [("u1", "", "user"), ("a1", "u1", "assistant")]
            .map(|(uuid, parent, kind)| chain(uuid, parent, kind, "text", "").replace(OLD, id));
        [prompt.as_bytes(), &long, b"@@@", reply.as_bytes(), b""].join(&b'\n')
    };
    let content = text(OLD);
    let (folder, source) = transcript(&content);
    let copy = copy_as(&source, folder.path(), NEW).expect("a copy");
    assert!(fs::read(&copy).expect("the copy") == text(NEW), "all of it");
    let index = crate::transcript::claude::reading::index(&source).expect("an index");
    let branch = index.select(None, true).expect("a branch");
    let folder = folder.path().join("repaired");
    let repaired =
        crate::transcript::claude::repair::repair(&source, &index, &branch, &folder, NEW).expect("a copy");
    assert_eq!(repaired.repairs.left_out, 1);
    let lengths: Vec<usize> = fs::read(repaired.path)
        .expect("the copy")
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::len)
        .collect();
    assert_eq!((lengths.len(), lengths[1]), (4, long.len()));
}

/// F40: a file that is there stays.
#[test]
fn nothing_is_ever_replaced() {
    let (folder, source) = transcript(b"{\"a\":1}\n");
    fs::write(folder.path().join(format!("{NEW}.jsonl")), "kept").expect("a file");
    assert!(matches!(
        copy_as(&source, folder.path(), NEW),
        Err(TranscriptError::AlreadyExists { .. })
    ));
    assert!(matches!(
        copy_as(&source, folder.path(), OLD),
        Err(TranscriptError::AlreadyExists { .. })
    ));
    assert!(matches!(
        copy_as(&source, folder.path(), "../x"),
        Err(TranscriptError::InvalidId { .. })
    ));
    let target = folder.path().join("free.jsonl");
    fs::write(folder.path().join("taken.jsonl"), "kept").expect("a file");
    fs::write(&target, "moved").expect("a file");
    let taken = folder.path().join("taken.jsonl");
    assert!(matches!(
        rename_if_free(&target, &taken),
        Err(TranscriptError::AlreadyExists { .. })
    ));
    assert_eq!(fs::read_to_string(&taken).expect("a file"), "kept");
    assert_eq!(names(folder.path()).len(), 4, "no temporary file is left");
}

/// A copy is whole as soon as it has its name, also after a loss of power.
#[test]
fn a_copy_is_synced_before_it_is_named_and_its_name_before_it_is_told() {
    let (folder, source) = transcript(b"{\"a\":1}\n");
    let disk = Disk::of(folder.path());
    let new = folder.path().join("projects/-home-u-project");
    let target = new.join("bundle");
    // More than is written at once.
    let text = vec![b'x'; 3 << 20];
    let fill = |writer: &mut dyn Write| {
        let written = writer.write_all(&text);
        written.map_err(TranscriptError::io("write", &target))
    };
    copy_as(&source, &new, NEW).expect("a copy");
    assert_eq!(disk.check_lasts("a copy in a new folder"), 1);
    create_in(folder.path(), NEW, "fork", fill).expect("a fork");
    assert_eq!(disk.check_lasts("a fork"), 2);
    create(&target, fill).expect("a file");
    assert_eq!(disk.check_lasts("a file"), 3);
    create_first(target.clone(), [new.join("second")], fill).expect("a file");
    // The first name was taken.
    assert_eq!(disk.check_lasts("a file of another name"), 5);
}

#[test]
fn a_copy_can_go_into_a_folder_that_is_not_there_yet() {
    let (folder, source) = transcript(b"{\"a\":1}\n");
    let other = folder.path().join("projects/-home-u-project");
    let copy = copy_as(&source, &other, NEW).expect("a copy");
    assert_eq!(copy, other.join(format!("{NEW}.jsonl")));
    assert_eq!(fs::read(&copy).expect("the copy"), b"{\"a\":1}\n");
    let mode = fs::metadata(&other).expect("the folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(source.is_file());
}

/// All files below a folder, with what is in them.
fn below(folder: &Path, name: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let own = path.file_name().expect("a name").to_string_lossy();
        let name = format!("{name}{own}");
        match path.is_dir() {
            true => files.extend(below(&path, &format!("{name}/"))),
            false => files.push((name, fs::read_to_string(&path).expect("a text"))),
        }
    }
    files.sort();
    files
}

/// F40: the side files come along, and what borrows from others does not borrow any more.
#[test]
fn the_files_beside_a_transcript_are_copied_with_it() {
    const OTHER: &str = "44444444-4444-4444-8444-444444444444";
    let at = |project: &Path, file: &str| format!("{}/{file}", project.display());
    let record = |project: &Path, session: &str, own: &str, borrowed: &str| {
        format!(
            concat!(
                r#"{{"sessionId":"{session}","message":{{"content":[{{"type":"tool_result","content":"#,
                r#""<persisted-output>\nsaved to: {own}\n\nsee {own}"}}]}},"#,
                r#""toolUseResult":{{"persistedOutputPath":"{borrowed}","agentId":"x2"}}}}"#,
                "\n"
            ),
            session = session,
            own = at(project, own),
            borrowed = at(project, borrowed),
        )
    };
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path();
    let (own, others) = (
        format!("{OLD}/tool-results/a.txt"),
        format!("{OTHER}/tool-results/a.txt"),
    );
    let source = project.join(format!("{OLD}.jsonl"));
    fs::write(&source, record(project, OLD, &own, &others)).expect("a file");
    for (name, text) in [
        (own.clone(), "a".to_owned()),
        (format!("{OLD}/tool-results/unnamed.txt"), "unnamed".to_owned()),
        (
            format!("{OLD}/subagents/deep/agent-x1.jsonl"),
            record(project, OLD, &own, &others),
        ),
        (
            format!("{OLD}/subagents/deep/agent-x1.meta.json"),
            "{}".to_owned(),
        ),
        (format!("{OLD}/notes"), "newer than this code".to_owned()),
        (others.clone(), "the other's".to_owned()),
        (format!("{OTHER}/subagents/agent-x2.jsonl"), "{}\n".to_owned()),
        (
            format!("{OTHER}/tool-results/b.txt"),
            "nobody names it".to_owned(),
        ),
    ] {
        let path = project.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    std::os::unix::fs::symlink(&source, project.join(OLD).join("tool-results/link")).expect("a link");
    let before = below(project, "");
    // The other folder is where the agent looks, as of a session that ran in a linked one.
    for target in [project.to_owned(), project.join("elsewhere")] {
        make_folder(&target).expect("a folder");
        let disk = Disk::of(&target);
        let copy = copy_as(&source, &target, NEW).expect("a copy");
        disk.check_lasts("a copy with files");
        let named = |session: &str| {
            let own = format!("{NEW}/tool-results/a.txt");
            let text = record(
                &target,
                session,
                &own,
                &format!("{NEW}/tool-results/{OTHER}-a.txt"),
            );
            // What was said stays as it was.
            text.replace(
                &format!("see {}", at(&target, &own)),
                &format!("see {}", at(project, &format!("{OLD}/tool-results/a.txt"))),
            )
        };
        assert_eq!(fs::read_to_string(copy).expect("the copy"), named(NEW));
        let expected = [
            ("notes".to_owned(), "newer than this code".to_owned()),
            ("subagents/agent-x2.jsonl".to_owned(), "{}\n".to_owned()),
            ("subagents/deep/agent-x1.jsonl".to_owned(), named(NEW)),
            ("subagents/deep/agent-x1.meta.json".to_owned(), "{}".to_owned()),
            (format!("tool-results/{OTHER}-a.txt"), "the other's".to_owned()),
            ("tool-results/a.txt".to_owned(), "a".to_owned()),
            ("tool-results/unnamed.txt".to_owned(), "unnamed".to_owned()),
        ];
        assert_eq!(below(&target.join(NEW), ""), expected);
        remove_copy(&target.join(format!("{NEW}.jsonl"))).expect("removed");
    }
    fs::remove_dir(project.join("elsewhere")).expect("an empty folder");
    assert_eq!(below(project, ""), before, "the source is as it was");
    // A file where the folder is to be: nothing is left of the attempt.
    fs::write(project.join(NEW), "kept").expect("a file");
    assert!(copy_as(&source, project, NEW).is_err());
    fs::remove_file(project.join(NEW)).expect("removed");
    assert_eq!(
        below(project, ""),
        before,
        "nothing is left of an attempt that failed"
    );
}
