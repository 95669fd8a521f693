//! A start at which the store has lost acknowledged changes: what an earlier daemon left unfinished is not undone then,
//! because the conversation that owns the files may be among what was lost.

use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::carrying::{bundled, files_below, import};
use crate::home::Home;

/// The import was recorded, and a kill came before its plan was deleted. Then the record was lost.
#[tokio::test]
async fn an_imported_transcript_stays_although_the_store_lost_its_conversation() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path) = {
        let (_daemon, app, id) = there.begun(&["one"]).await;
        (id, bundled(&app, id).await)
    };
    let transcript = {
        let (_daemon, app) = here.opened().await;
        let imported = import(&app, json!({"path": path, "cwd": here.project()}));
        let head = imported.await.unwrap().head.unwrap();
        // These follow in the journal, so that a gap is left where the import was.
        app.make(&here.project()).await;
        app.make(&here.project()).await;
        here.transcript(head.as_str()).unwrap()
    };
    let before = fs::read(&transcript).unwrap();
    let metadata = fs::metadata(&transcript).unwrap();
    let digest: String = Sha256::digest(&before)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plan = here.data().join("imports/left/plan");
    fs::create_dir_all(plan.parent().unwrap()).unwrap();
    let notes = [
        json!({"conversation": id}),
        json!({"file": {"path": {"Unix": transcript.as_os_str().as_bytes()},
            "session": transcript.file_stem().unwrap().to_str(), "device": metadata.dev(),
            "inode": metadata.ino(), "bytes": metadata.len(), "sha256": digest}}),
    ];
    let text = format!("{}\n{}\n", notes[0], notes[1]);
    fs::write(&plan, &text).unwrap();
    let journal = here.data().join("journal.jsonl");
    let lines = fs::read_to_string(&journal).unwrap();
    let id = id.to_string();
    let kept: String = lines
        .split_inclusive('\n')
        .filter(|line| !line.contains(&id))
        .collect();
    assert_ne!(kept, lines);
    fs::write(&journal, kept).unwrap();
    fs::remove_dir_all(here.data().join("store")).unwrap();

    // The second start finds a whole store. It must not undo the import that the first start set aside.
    for start in 0..2 {
        let (_daemon, app) = here.opened().await;
        assert_eq!(
            fs::read(&transcript).ok().as_ref(),
            Some(&before),
            "start {start}"
        );
        let imports = here.data().join("imports");
        let left = files_below(&imports);
        assert_eq!(left, [imports.join("left.set-aside-1/plan")], "start {start}");
        assert_eq!(fs::read_to_string(&left[0]).unwrap(), text);
        let aside = app.set_aside().await;
        assert!(
            aside.contains(&imports.join("left.set-aside-1")),
            "start {start}: {aside:?}"
        );
        // The bundle can be imported again, which leaves the plan and the transcript alone too.
        if start == 1 {
            let again = json!({"path": path, "cwd": here.folder_named("again"), "newIds": true});
            import(&app, again).await.unwrap();
            assert!(left[0].exists() && transcript.exists());
        }
    }
}
