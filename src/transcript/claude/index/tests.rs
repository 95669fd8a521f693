use std::collections::{HashMap, HashSet};
use std::io::BufReader;

use proptest::prelude::*;

use super::*;
use crate::transcript::lines::LINE_LIMIT_BYTES;

/// A record of a generated tree. Numbers stand for uuids.
#[derive(Debug, Clone)]
struct Made {
    uuid: u8,
    parent: Option<u8>,
    logical_parent: Option<u8>,
    kept_tail: Option<u8>,
    role: RecordRole,
    message: Option<u8>,
    is_sidechain: bool,
}

fn id(number: u8) -> String {
    // Some are uuids and some are not, as agents may write them.
    match number % 3 {
        0 => format!("00000000-0000-4000-8000-0000000000{number:02x}"),
        1 => format!("id \\\" {number}"),
        _ => format!("ABCDEF00-0000-4000-8000-0000000000{number:02X}"),
    }
}

fn spoken(number: u8) -> String {
    id(number).replace('\\', "")
}

impl Made {
    fn line(&self) -> String {
        let json =
            |id: Option<u8>| id.map_or("null".to_owned(), |number| format!("\"{}\"", self::id(number)));
        let rest = match self.role {
            RecordRole::Prompt => {
                r#""type":"user","origin":{"kind":"human"},"message":{"content":"x"}"#.to_owned()
            }
            RecordRole::ToolResult => r#""type":"user","toolUseResult":1"#.to_owned(),
            RecordRole::Aside => r#""type":"user","message":{"content":"<command-name>"}"#.to_owned(),
            RecordRole::OtherUser => r#""type":"user","isMeta":true"#.to_owned(),
            RecordRole::Assistant => {
                format!(r#""type":"assistant","message":{{"id":{}}}"#, json(self.message))
            }
            RecordRole::Other => r#""type":"system""#.to_owned(),
        };
        format!(
            r#"{{"uuid":"{}","parentUuid":{},"logicalParentUuid":{},"isSidechain":{},"compactMetadata":{{"preservedSegment":{{"tailUuid":{}}}}},{rest}}}"#,
            id(self.uuid),
            json(self.parent),
            json(self.logical_parent),
            self.is_sidechain,
            json(self.kept_tail),
        )
    }
}

/// What a branch is: numbers of lines.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    lines: Vec<usize>,
    leaf: String,
    cut_by_compaction: bool,
    breaks: usize,
}

/// The meaning of a transcript's tree, written down without any thought of memory.
fn expected(records: &[Made], until: Option<u8>, follow_compaction: bool) -> Option<Expected> {
    let last: HashMap<u8, usize> = records
        .iter()
        .enumerate()
        .map(|(line, made)| (made.uuid, line))
        .collect();
    // On the side there is no prompt: what was said there is not a person's.
    let role = |made: &Made| match made.role {
        RecordRole::Prompt if made.is_sidechain => RecordRole::OtherUser,
        role => role,
    };
    let main = || records.iter().rev().filter(|made| !made.is_sidechain);
    let live = main()
        .find(|made| role(made) != RecordRole::Other)
        .or_else(|| main().next());
    let leaf = *last.get(&until.or(live.map(|made| made.uuid))?)?;
    let mut on = HashSet::from([leaf]);
    let (mut cut_by_compaction, mut broken) = (false, HashSet::new());
    let mut line = leaf;
    let mut path = Vec::new();
    loop {
        path.push(line);
        let made = &records[line];
        let stands_before = |tail: &u8| last.get(tail).is_some_and(|place| *place < line);
        let logical = made.logical_parent.filter(|parent| last.contains_key(parent));
        let logical = logical
            .or(made.kept_tail.filter(stands_before))
            .or(made.logical_parent);
        let logical = logical.filter(|_| follow_compaction);
        let Some(parent) = made.parent.or(logical) else {
            break;
        };
        match last.get(&parent) {
            Some(next) if on.insert(*next) => line = *next,
            Some(again) => {
                // The parent that was written after its child closes the circle: the branch begins with the first such child.
                let start = path
                    .iter()
                    .position(|line| line == again)
                    .expect("it is on the path");
                let parents = path[start + 1..].iter().chain([again]);
                let children = path[start..].iter().zip(parents);
                let first = children
                    .filter(|(child, parent)| parent >= child)
                    .map(|(child, _)| *child)
                    .min();
                let first = first.expect("no circle only leads back");
                let end = path
                    .iter()
                    .position(|line| *line == first)
                    .expect("it is on the path");
                for left_out in path.drain(end + 1..) {
                    on.remove(&left_out);
                    broken.remove(&left_out);
                }
                broken.insert(first);
                break;
            }
            None if made.parent.is_none() => {
                cut_by_compaction = true;
                break;
            }
            None => {
                broken.insert(line);
                // Of several with one id the last is meant, and the others are passed over.
                let is_meant = |line: &usize| last.get(&records[*line].uuid) == Some(line);
                let before = (0..line)
                    .rev()
                    .find(|line| !records[*line].is_sidechain && !on.contains(line) && is_meant(line));
                let Some(before) = before else { break };
                on.insert(before);
                line = before;
            }
        }
    }
    let message = |line: usize| {
        records[line]
            .message
            .filter(|_| records[line].role == RecordRole::Assistant)
    };
    let said: HashSet<u8> = on.iter().filter_map(|line| message(*line)).collect();
    for (line, made) in records.iter().enumerate().take(leaf) {
        let parent = made
            .parent
            .and_then(|parent| last.get(&parent))
            .filter(|parent| on.contains(parent));
        let (Some(parent), false) = (parent, made.is_sidechain) else {
            continue;
        };
        // Of several with one id the last is meant.
        if last
            .get(&made.uuid)
            .is_some_and(|last| *last != line && on.contains(last))
        {
            continue;
        }
        let of_message = match made.role {
            RecordRole::Assistant => message(line),
            RecordRole::ToolResult => message(*parent),
            _ => None,
        };
        if of_message.is_some_and(|message| said.contains(&message)) {
            on.insert(line);
        }
    }
    // So it is where both were said beside the branch.
    let meant = |line: usize| last.get(&records[line].uuid).filter(|last| on.contains(last));
    let mut lines: Vec<usize> = on
        .iter()
        .copied()
        .filter(|line| meant(*line).is_none_or(|last| last == line))
        .collect();
    lines.sort_unstable();
    Some(Expected {
        lines,
        leaf: spoken(records[leaf].uuid),
        cut_by_compaction,
        breaks: broken.len(),
    })
}

fn trees() -> impl Strategy<Value = Vec<Made>> {
    let roles = prop::sample::select(vec![
        RecordRole::Prompt,
        RecordRole::ToolResult,
        RecordRole::ToolResult,
        RecordRole::Aside,
        RecordRole::OtherUser,
        RecordRole::Assistant,
        RecordRole::Assistant,
        RecordRole::Assistant,
        RecordRole::Other,
    ]);
    let made = (
        0u8..40,
        prop::option::weighted(0.9, 0u8..44),
        prop::option::weighted(0.2, 0u8..44),
        prop::option::weighted(0.2, 0u8..44),
        roles,
        prop::option::weighted(0.9, 0u8..4),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.6),
        prop::bool::weighted(0.9),
    );
    prop::collection::vec(made, 0..30).prop_map(|made| {
        let mut records: Vec<Made> = Vec::new();
        for (
            number,
            (uuid, parent, logical_parent, kept_tail, role, message, is_sidechain, follows, is_new),
        ) in made.into_iter().enumerate()
        {
            // Mostly an id of its own and a parent that is there, else anything: circles, doubles, what comes later.
            let before = records.last().map(|made| made.uuid);
            let message = message.filter(|_| role == RecordRole::Assistant);
            records.push(Made {
                uuid: if is_new { number as u8 } else { uuid },
                parent: if follows && parent.is_some() {
                    before
                } else {
                    parent
                },
                logical_parent,
                kept_tail,
                role,
                message,
                is_sidechain,
            });
        }
        records
    })
}

fn text(records: &[Made]) -> String {
    records.iter().map(|made| made.line() + "\n").collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Whatever hangs together how: the index finds the branch that the words above mean.
    #[test]
    fn a_branch_is_what_it_means(records in trees(), until in prop::option::of(0u8..44), follow in any::<bool>(), grown in any::<prop::sample::Index>()) {
        let text = text(&records);
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(newline, _)| newline as u64 + 1));
        let index = ClaudeIndex::read(text.as_bytes()).expect("memory can be read");
        let selection = index.select(until.map(spoken).as_deref(), follow);
        let found = selection.as_ref().map(|selection| Expected {
            lines: selection.offsets.iter().map(|offset| starts.binary_search(offset).expect("a line")).collect(),
            leaf: selection.leaf_uuid.clone(),
            cut_by_compaction: selection.cut_by_compaction,
            breaks: selection.missing_parents,
        });
        prop_assert_eq!(found, expected(&records, until, follow));

        // It is the same when it is read in two parts, one after the other or both at once.
        let middle = starts[grown.index(starts.len())] as usize;
        let mut parts = ClaudeIndex::read(&text.as_bytes()[..middle]).expect("memory can be read");
        parts.extend(&text.as_bytes()[middle..]).expect("memory can be read");
        prop_assert_eq!(&parts.select(until.map(spoken).as_deref(), follow), &selection);
        prop_assert_eq!(parts.prompts, index.prompts);
        let missing: Vec<_> = index.missing_parents().collect();
        prop_assert_eq!(parts.missing_parents().collect::<Vec<_>>(), missing.clone());
        let (earlier, later) = text.as_bytes().split_at(middle);
        let parts = ClaudeIndex::read_parts(earlier, later, middle as u64).expect("memory can be read");
        prop_assert_eq!(&parts.select(until.map(spoken).as_deref(), follow), &selection);
        prop_assert_eq!((parts.prompts, parts.records(), parts.extent()), (index.prompts, index.records(), index.extent()));
        prop_assert_eq!(parts.missing_parents().collect::<Vec<_>>(), missing);
    }
}

const PROMPT: &str =
    r#"{"type":"user","uuid":"u1","parentUuid":null,"origin":{"kind":"human"},"message":{"content":"x"}}"#;

/// A line of `bytes` bytes that is never in memory as a whole.
struct LongLine {
    left: usize,
    piece: Vec<u8>,
}

impl io::Read for LongLine {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let taken = self.left.min(buffer.len()).min(self.piece.len());
        buffer[..taken].copy_from_slice(&self.piece[..taken]);
        self.left -= taken;
        Ok(taken)
    }
}

#[test]
fn a_line_longer_than_one_that_is_read_whole_is_no_record() {
    use std::io::Read;
    let begin = r#"{"type":"user","uuid":"long","parentUuid":"u1","message":{"content":""#;
    let end = "\"}}\n";
    let around = begin.len() + end.len() - 1;
    for (longer, records) in [(0, 2), (1, 1)] {
        let text = LongLine {
            left: LINE_LIMIT_BYTES - around + longer,
            piece: vec![b'x'; 1 << 20],
        };
        let before = format!("{PROMPT}\n{begin}");
        let reader = before.as_bytes().chain(text).chain(end.as_bytes());
        let index = ClaudeIndex::read(BufReader::with_capacity(1 << 20, reader)).expect("memory can be read");
        assert_eq!((index.records(), index.garbage_lines), (records, longer as u64));
        assert_eq!(
            index.extent().bytes as usize,
            PROMPT.len() + 1 + LINE_LIMIT_BYTES + longer + 1
        );
    }
}

#[test]
fn a_record_takes_less_than_sixty_bytes() {
    let line = |number: u32| {
        format!(
            "{{\"uuid\":\"00000000-0000-4000-8000-{number:012x}\",\"parentUuid\":\"00000000-0000-4000-8000-{:012x}\"}}\n",
            number - 1
        )
    };
    let text: String = (1..=20_000).map(line).collect();
    let index = ClaudeIndex::read(text.as_bytes()).expect("memory can be read");
    assert_eq!(index.records(), 20_000);
    assert!(index.memory_bytes() < 20_000 * 60, "{}", index.memory_bytes());
}
