//! Limits on bundles from an untrusted source: a bundle chooses neither the folders in which its sessions run nor which
//! files of an agent are written.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::error::ErrorKind;
use bridge_protocol::{ConversationId, UpstreamId};
use serde_json::{Value, json};

use super::bad_bundles::{Entry, read, with_manifest};
use crate::carrying::{bundle, bundled, files_below, import};
use crate::home::Home;
use crate::support::refused;

/// A bundle of a conversation with one session and one tool result.
struct Bundle {
    id: ConversationId,
    head: UpstreamId,
    path: String,
    entries: Vec<Entry>,
}

async fn exported(there: &Home) -> Bundle {
    let (_daemon, app, id) = there.begun(&["one"]).await;
    let transcript = there.transcript_of(&app, id).await;
    let results = transcript.with_extension("").join("tool-results");
    fs::create_dir_all(&results).unwrap();
    fs::write(results.join("r.txt"), "long").unwrap();
    let path = bundled(&app, id).await;
    Bundle {
        id,
        head: app.get(id).await.head.unwrap(),
        entries: read(&fs::read(&path).unwrap()),
        path,
    }
}

/// Replaces a text in all strings of the manifest.
fn replaced(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => *text = text.replace(old, new),
        Value::Array(items) => items.iter_mut().for_each(|item| replaced(item, old, new)),
        Value::Object(members) => members.values_mut().for_each(|member| replaced(member, old, new)),
        _ => {}
    }
}

fn projects(home: &Home) -> PathBuf {
    home.data().join("loopback/projects")
}

#[tokio::test]
async fn an_import_needs_a_folder_or_the_word_that_those_of_the_bundle_are_meant() {
    let (there, here) = (Home::new(), Home::new());
    let bundle = exported(&there).await;
    let (_daemon, app) = here.opened().await;
    let both = json!({"path": bundle.path, "cwd": here.project(), "sameFolders": true});
    for params in [
        json!({"path": bundle.path}),
        json!({"path": bundle.path, "sameFolders": false}),
        both,
    ] {
        refused(import(&app, params).await, ErrorKind::InvalidParams);
        assert_eq!(files_below(&projects(&here)), [] as [PathBuf; 0]);
    }
    let params = json!({"path": bundle.path, "sameFolders": true});
    let imported = import(&app, params).await.unwrap();
    assert_eq!((imported.id, imported.cwd), (bundle.id, there.project()));
    assert_eq!(app.remembered(bundle.id).await, ["one"]);
    // Folders that the bundle names must exist, also the folder of a single session.
    for part in ["sessions", "chain"] {
        let path = here.path().join("elsewhere");
        let bytes = with_manifest(&bundle.entries, |manifest| {
            manifest[part][0]["cwd"] = json!(there.path().join("gone"));
        });
        fs::write(&path, bytes).unwrap();
        let params = json!({"path": path, "sameFolders": true, "newIds": true});
        refused(import(&app, params).await, ErrorKind::InvalidCwd);
    }
}

/// Neither `..` nor a link leads out of the given folder. A subfolder of the old project becomes the same subfolder of
/// the new one.
#[tokio::test]
async fn no_session_runs_outside_of_the_folder_that_was_given() {
    let (there, here) = (Home::new(), Home::new());
    let bundle = exported(&there).await;
    let (project, outside) = (here.project(), here.folder_named("outside"));
    fs::create_dir(Path::new(&project).join("sub")).unwrap();
    std::os::unix::fs::symlink(&outside, Path::new(&project).join("link")).unwrap();
    let old = there.project();
    let (_daemon, app) = here.opened().await;
    for (cwd, expected) in [
        (format!("{old}/../outside"), project.clone()),
        (format!("{old}/sub/../../outside"), project.clone()),
        (format!("{old}/link"), project.clone()),
        (outside.clone(), project.clone()),
        ("/".to_owned(), project.clone()),
        ("outside".to_owned(), project.clone()),
        (format!("{old}/sub"), format!("{project}/sub")),
        (format!("{old}/./x/../sub"), format!("{project}/sub")),
    ] {
        let path = here.path().join("bundle");
        let bytes = with_manifest(&bundle.entries, |manifest| {
            for part in ["sessions", "chain", "lineage"] {
                manifest[part][0]["cwd"] = json!(cwd);
            }
        });
        fs::write(&path, bytes).unwrap();
        let params = json!({"path": path, "cwd": project, "newIds": true});
        let imported = import(&app, params).await.unwrap();
        assert_eq!(imported.cwd, project, "{cwd}");
        let chain = app.chain(imported.id).await;
        assert_eq!(chain[0].cwd, expected, "{cwd}");
        let lineage = app.lineage(imported.id).await;
        assert!(lineage.iter().all(|entry| entry.cwd == expected), "{cwd}");
        let folder = expected.replace(|unit: char| !unit.is_ascii_alphanumeric(), "-");
        let transcript = here.transcript(imported.head.unwrap().as_str()).unwrap();
        assert_eq!(
            transcript.parent().unwrap(),
            projects(&here).join(folder),
            "{cwd}"
        );
    }
}

/// The agent reads `memory/MEMORY.md` in every session of the folder, so a bundle must not write it.
#[tokio::test]
async fn only_the_files_of_sessions_are_written() {
    let (there, here) = (Home::new(), Home::new());
    let bundle = exported(&there).await;
    let head = bundle.head.as_str();
    let (_daemon, app) = here.opened().await;
    let mut bundles = Vec::new();
    for id in ["memory", "..", ".", "sessions-index", "x", &head.to_uppercase()] {
        let bytes = with_manifest(&bundle.entries, |manifest| {
            replaced(manifest, head, id);
            manifest["sessions"][0]["files"][1]["name"] = json!(format!("{id}/MEMORY.md"));
            // Restores the names of the archive's entries, which are not paths of files to write.
            let own: Value = serde_json::from_slice(&bundle.entries[0].1).unwrap();
            for number in 0..2 {
                let path = own["sessions"][0]["files"][number]["path"].clone();
                manifest["sessions"][0]["files"][number]["path"] = path;
            }
        });
        bundles.push((id.to_owned(), bytes));
    }
    for name in [
        "MEMORY.md",
        "memory/MEMORY.md",
        "subagents",
        "subagents/../x",
        "tool-results-x/y",
    ] {
        let bytes = with_manifest(&bundle.entries, |manifest| {
            manifest["sessions"][0]["files"][1]["name"] = json!(format!("{head}/{name}"));
        });
        bundles.push((name.to_owned(), bytes));
    }
    let bytes = with_manifest(&bundle.entries, |manifest| {
        manifest["sessions"][0]["files"][1]["knownAs"] = json!("memory/tool-results/r.txt");
    });
    bundles.push(("a borrowed file".to_owned(), bytes));
    for (what, bytes) in bundles {
        for new_ids in [false, true] {
            let path = here.path().join("bundle");
            fs::write(&path, &bytes).unwrap();
            let params = json!({"path": path, "cwd": here.project(), "newIds": new_ids});
            let answer = import(&app, params).await;
            assert!(answer.is_err(), "{what}: {answer:?}");
            refused(answer, ErrorKind::TranscriptDamaged);
            assert_eq!(files_below(&projects(&here)), [] as [PathBuf; 0], "{what}");
        }
    }
}

/// The export omits files that an import would refuse, and reports them as missing.
#[tokio::test]
async fn what_lies_beside_a_transcript_otherwise_is_left_out_of_a_bundle() {
    let (there, here) = (Home::new(), Home::new());
    let (_daemon, app, id) = there.begun(&["one"]).await;
    let beside = there.transcript_of(&app, id).await.with_extension("");
    for name in ["memory/MEMORY.md", "subagents/agent-1.jsonl", "notes"] {
        fs::create_dir_all(beside.join(name).parent().unwrap()).unwrap();
        fs::write(beside.join(name), "{}\n").unwrap();
    }
    let exported = bundle(&app, id).await;
    assert_eq!(exported["missing"].as_array().unwrap().len(), 2, "{exported}");
    let other = here.start();
    let far = other.app().await;
    let params = json!({"path": exported["path"], "cwd": here.project()});
    let imported = import(&far, params).await.unwrap();
    let beside = here.transcript_of(&far, imported.id).await.with_extension("");
    assert_eq!(files_below(&beside), [beside.join("subagents/agent-1.jsonl")]);
}
