//! Compares the chain and lineage of a conversation with what was acknowledged of them, and with each other.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::Client;
use super::ledger::{Ledger, text};

/// The maximum number of links in a chain.
pub(crate) const CHAIN_LIMIT: usize = 16;

/// Checks that every upstream id ever seen in the conversation resolves to it.
pub(crate) fn verify_upstream(client: &mut Client, ledger: &mut Ledger) {
    for upstream in &ledger.upstream {
        let found = client.call("conversation/get", &json!({"conversationId": upstream}));
        assert_eq!(found["conversation"]["id"], ledger.id.as_str(), "{upstream}");
    }
}

/// If a conversation changes during this many readings in a row, it is assumed never to rest.
const PASSES_LIMIT: usize = 100;

/// What the daemon reports about one conversation.
struct Seen {
    entries: Value,
    links: Value,
    view: Value,
}

impl Seen {
    /// Reads chain, lineage and view without a change in between, because a conversation may continue
    /// automatically between two calls. A turn that ran when the daemon was killed is continued a few times
    /// at most.
    fn at_one_time(client: &mut Client, id: &str) -> Self {
        let params = json!({"conversationId": id, "limit": 1000});
        let mut lineage = client.call("conversation/lineage", &params)["entries"].take();
        for _ in 0..PASSES_LIMIT {
            let entries = lineage;
            let named = json!({"conversationId": id});
            let links = client.call("conversation/chain", &named)["links"].take();
            let view = client.call("conversation/get", &named)["conversation"].take();
            lineage = client.call("conversation/lineage", &params)["entries"].take();
            if lineage == entries {
                return Self { entries, links, view };
            }
        }
        panic!("{id} changed during {PASSES_LIMIT} readings");
    }
}

/// Checks that the lineage has every entry seen before and no gap, and that the chain follows from it.
pub(crate) fn verify_chain(client: &mut Client, ledger: &mut Ledger) {
    let seen_now = Seen::at_one_time(client, &ledger.id);
    let entries = seen_now.entries.as_array().unwrap();
    for (place, entry) in entries.iter().enumerate() {
        assert_eq!(
            entry["seq"],
            place as u64 + 1,
            "{}: a gap in {entries:#?}",
            ledger.id
        );
    }
    let seen = ledger.lineage.len();
    assert!(
        entries.len() >= seen,
        "{}: the lineage has {} of {seen} entries",
        ledger.id,
        entries.len()
    );
    let is_news = |entry: &&Value| !ledger.lineage.contains_key(&entry["seq"].as_u64().unwrap());
    let news: Vec<&Value> = entries.iter().filter(is_news).collect();
    if news.iter().any(|entry| entry["reason"] == "edited") {
        ledger.history_was_edited();
    }
    // An undone move is recorded once for each session that moved, with the head last.
    if let Some(head) = news.iter().rfind(|entry| entry["reason"] == "undone") {
        ledger.history_was_undone(head);
    }
    for entry in entries {
        let is_news = !ledger.lineage.contains_key(&entry["seq"].as_u64().unwrap());
        let lost_something = entry["fidelity"] != "full" && entry["reason"] != "reset";
        if is_news && lost_something && !ledger.told.contains(&text(entry, "upstreamId")) {
            // The lineage reports the loss, but no client received how many turns are missing.
            ledger.history.clear();
        }
    }
    ledger.saw_lineage(entries);
    let in_lineage: BTreeSet<String> = entries.iter().map(|entry| text(entry, "upstreamId")).collect();
    let unknown: Vec<&String> = ledger.upstream.difference(&in_lineage).collect();
    assert!(
        unknown.is_empty(),
        "{}: ids missing in the lineage: {unknown:?}",
        ledger.id
    );

    let resets = entries.iter().filter(|entry| entry["reason"] == "reset").count();
    assert!(
        resets >= ledger.resets,
        "{}: the lineage has {resets} of {} resets",
        ledger.id,
        ledger.resets
    );
    if resets > ledger.resets {
        ledger.begin_anew();
        ledger.resets = resets;
    }

    let links = seen_now.links.as_array().unwrap();
    let view = &seen_now.view;
    assert_eq!(view["chainLength"], links.len());
    let head = links
        .last()
        .map_or(Value::Null, |link| link["upstreamId"].clone());
    assert_eq!(view["head"], head, "{}", ledger.id);
    for link in links {
        let (id, turns) = (text(link, "upstreamId"), link["turns"].as_u64().unwrap());
        let seen = ledger.turns.get(&id).copied().unwrap_or_default();
        assert!(turns >= seen, "{}: {id} has {turns} of {seen} turns", ledger.id);
        assert!(
            link["written"] == true || !ledger.written.contains(&id),
            "{}: {link}",
            ledger.id
        );
        ledger.saw_link(link);
    }
    let ids: Vec<String> = links.iter().map(|link| text(link, "upstreamId")).collect();
    if let Err(why) = chain_follows(entries, &ids, &ledger.written) {
        panic!("{}: {why}\nchain {ids:#?}\nlineage {entries:#?}", ledger.id);
    }
}

/// Checks a chain against the lineage by the rules of the chain: a new id is appended; an older equal id is
/// removed; a session that moves to another folder keeps its place; a head that was never written may be
/// removed when another one comes; after sixteen links the oldest is removed; a reset removes all.
fn chain_follows(entries: &[Value], chain: &[String], written: &BTreeSet<String>) -> Result<(), String> {
    let mut expected: Vec<(String, bool)> = Vec::new();
    for entry in entries {
        let id = text(entry, "upstreamId");
        match entry["reason"].as_str().unwrap() {
            "reset" | "deleted" => expected.clear(),
            "updated" | "abandoned" => {}
            // A move of a folder records the sessions that ran in it, which may all be older ones.
            "moved" if expected.iter().any(|(known, _)| *known == id) => {}
            _ => {
                if let Some((head, may_have_left)) = expected.last_mut() {
                    *may_have_left |= !written.contains(head);
                }
                expected.retain(|(known, _)| *known != id);
                expected.push((id, false));
            }
        }
    }
    if chain.len() > CHAIN_LIMIT {
        return Err(format!("{} links", chain.len()));
    }
    let distinct: BTreeSet<&String> = chain.iter().collect();
    if distinct.len() < chain.len() {
        return Err("an id stands there twice".to_owned());
    }
    let may_have_lost_the_oldest = expected.len() > CHAIN_LIMIT;
    let mut rest = chain;
    while let Some((id, may_have_left)) = expected.pop() {
        match rest.split_last() {
            Some((last, before)) if *last == id => rest = before,
            None if may_have_lost_the_oldest => break,
            _ if may_have_left => {}
            _ => return Err(format!("{id} is missing")),
        }
    }
    if let Some(stray) = rest.last() {
        return Err(format!("{stray} does not belong there"));
    }
    Ok(())
}

#[test]
fn a_chain_that_is_not_what_the_lineage_says_is_seen() {
    let entry = |id: &str, reason: &str| json!({"upstreamId": id, "reason": reason});
    let written = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    let follows = |entries: &[Value], chain: &[&str], known: &[&str]| {
        let chain: Vec<String> = chain.iter().map(|id| (*id).to_owned()).collect();
        chain_follows(entries, &chain, &written(known)).is_ok()
    };
    let two = [entry("a", "created"), entry("b", "rolled")];
    assert!(follows(&two, &["a", "b"], &["a"]));
    assert!(
        follows(&two, &["b"], &[]),
        "a was never written, so it may be removed"
    );
    assert!(!follows(&two, &["b"], &["a"]), "a was written, so it must stay");
    assert!(!follows(&two, &["a"], &["a"]), "the head is missing");
    assert!(!follows(&two, &["b", "a"], &["a"]), "the order is wrong");
    assert!(
        !follows(&two, &["a", "x", "b"], &["a"]),
        "x is not in the lineage"
    );
    let back = [entry("a", "created"), entry("b", "forked"), entry("a", "undone")];
    assert!(follows(&back, &["b", "a"], &["a", "b"]));
    let moved = [two[0].clone(), two[1].clone(), entry("a", "moved")];
    assert!(follows(&moved, &["a", "b"], &["a", "b"]), "only a moved");
    assert!(
        !follows(&moved, &["b", "a"], &["a", "b"]),
        "a move does not change the head"
    );
    let reset = [entry("a", "created"), entry("a", "reset"), entry("b", "created")];
    assert!(follows(&reset, &["b"], &["a"]));
    assert!(!follows(&reset, &["a", "b"], &["a"]));
    let many: Vec<Value> = (0..20).map(|n| entry(&format!("u{n}"), "forked")).collect();
    let names: Vec<String> = (0..20).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(follows(&many, &names[4..], &names));
    assert!(!follows(&many, &names[3..], &names), "seventeen links");
}
