//! Times are those of the clock on the user's wall.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::home::Home;
use super::text;

/// A time of the wire as it is in this zone.
fn local(zone: &str, at: &Value, form: &str) -> String {
    let at: Timestamp = at.as_str().unwrap().parse().unwrap();
    let at = at.to_zoned(TimeZone::get(zone).unwrap());
    at.strftime(form).to_string()
}

#[test]
fn lists_and_the_history_have_local_times() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&home.said(&[arguments, &["--json"]].concat())).unwrap()
    };
    for zone in ["Asia/Tokyo", "America/New_York"] {
        let local = |at: &Value, form: &str| local(zone, at, form);
        let printed = |command: &str| {
            let mut command = home.command(&[command, &id]);
            text(&command.env("TZ", zone).output().unwrap().stdout)
        };
        let listed = &json(&["ls"])["conversations"][0]["updatedAt"];
        let linked = &json(&["chain", &id])["links"][0]["at"];
        let changed = &json(&["lineage", &id])["entries"][0]["at"];
        let turn = &json(&["checkpoints", &id])["checkpoints"][0]["at"];
        for (command, at) in [
            ("ls", listed),
            ("chain", linked),
            ("lineage", changed),
            ("checkpoints", turn),
        ] {
            let (printed, at) = (printed(command), local(at, "%Y-%m-%d %H:%M:%S"));
            assert!(
                printed.contains(&format!("\t{at}\t")),
                "{command}: {at}: {printed}"
            );
        }
        #[cfg(target_os = "linux")]
        {
            let said = &json(&["history", &id])["messages"][0]["at"];
            let mut command = home.command(&["history", &id]);
            command.env("TZ", zone).env("PAGER", "").env("NO_COLOR", "1");
            let shown = super::terminal::Terminal::of(80, &command).exits(0);
            let head = shown.lines().find(|line| line.contains("turn 1, ")).unwrap();
            assert!(head.ends_with(&local(said, "%H:%M")), "{zone}: {said}: {head}");
        }
    }
}

#[test]
fn errors_have_local_times() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["rm", &id]);
    let show = ["show", &id];
    let refused: Value =
        serde_json::from_slice(&home.run(&[&show[..], &["--json"]].concat()).stderr).unwrap();
    let deleted = refused["error"]["data"]["deletedAt"].clone();
    let other = home.said(&["new"]);
    let limited = ["send", &other, "[[limit 86400]]"];
    for zone in ["Asia/Tokyo", "America/New_York"] {
        let local = |at: &Value, form: &str| local(zone, at, form);
        let error = |arguments: &[&str]| {
            let output = home.command(arguments).env("TZ", zone).output().unwrap();
            text(&output.stderr)
        };
        let (shown, at) = (error(&show), local(&deleted, "deleted at %Y-%m-%d %H:%M;"));
        assert!(shown.contains(&at), "{zone}: {at}: {shown}");
        let sent = error(&limited);
        let resets = home.shown(&other)["limit"]["resetsAt"].clone();
        let at = local(&resets, "resets at %a %d %b %H:%M (in ");
        assert!(sent.contains(&at), "{zone}: {at}: {sent}");
    }
}
