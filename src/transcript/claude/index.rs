//! The first pass over a transcript: every chain record in some tens of bytes, and the walk along the parents.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, Seek, SeekFrom};

use uuid::Uuid;

use crate::transcript::lines::{Lines, RawLine, text_of_same_length, trimmed};
use crate::transcript::record::{Record, RecordHeader, RecordKind, line_text};

/// Where every chain record of a transcript stands and how they hang together.
#[derive(Debug, Clone, Default)]
pub struct Index {
    entries: Vec<Entry>,
    positions: HashMap<RecordId, u32>,
    bytes: u64,
    /// Where the last line ends that a newline ends.
    whole_bytes: u64,
    /// Whether a record was taken from behind that.
    took_unended: bool,
    garbage_lines: u64,
    prompts: u64,
    ends_torn: bool,
}

/// The records of one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    offsets: Vec<u64>,
    prompt_offsets: Vec<u64>,
    leaf_offset: u64,
    leaf_uuid: String,
    asides: usize,
    cut_by_compaction: bool,
    breaks: usize,
    broken_at: Option<String>,
}

/// Where one message of a branch stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where its record begins.
    pub offset: u64,
    /// Whether it is a prompt, with which a turn begins.
    pub is_prompt: bool,
    id: RecordId,
}

impl Place {
    /// The record's uuid.
    #[must_use]
    pub fn uuid(&self) -> String {
        self.id.text()
    }

    /// Whether the record has this uuid.
    #[must_use]
    pub fn is(&self, uuid: &str) -> bool {
        self.id == RecordId::new(uuid)
    }
}

/// What a walk along the parents found.
struct Walk {
    on_branch: Vec<bool>,
    cut_by_compaction: bool,
    /// The parents that are named and not there, or close a circle, nearest to the leaf first.
    broken_at: Vec<RecordId>,
}

#[derive(Debug, Clone)]
struct Entry {
    offset: u64,
    id: RecordId,
    parent: Option<RecordId>,
    logical_parent: Option<RecordId>,
    /// A hash of `message.id`; 0 without one.
    message: u64,
    role: Role,
    is_sidechain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Prompt,
    ToolResult,
    Aside,
    OtherUser,
    Assistant,
    Other,
}

/// A record's uuid: 16 bytes where it is one, its text where an agent writes something else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RecordId {
    Uuid(u128),
    Text(Box<str>),
}

impl RecordId {
    fn new(text: &str) -> Self {
        // Only the form that is written back the same way may be folded, or two ids could become one.
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
                Self::Uuid(uuid.as_u128())
            }
            _ => Self::Text(text.into()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Uuid(value) => Uuid::from_u128(*value).hyphenated().to_string(),
            Self::Text(text) => text.to_string(),
        }
    }
}

impl Index {
    /// Reads all lines of a transcript, from its first byte on.
    ///
    /// A last line without a newline counts when it is a whole record, as the agent counts it too.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read(reader: impl BufRead) -> io::Result<Self> {
        let mut index = Self::default();
        index.extend(reader)?;
        Ok(index)
    }

    /// Reads the lines that were appended; the reader's next byte is the one at [`Index::whole_bytes`].
    ///
    /// Only for an index that [`Index::can_extend`].
    ///
    /// # Errors
    /// What the reader answers; the index is of no use then.
    pub fn extend(&mut self, reader: impl BufRead) -> io::Result<()> {
        let mut lines = Lines::new(reader, self.whole_bytes);
        self.ends_torn = false;
        while let Some(line) = lines.next_line()? {
            let ended = line.ended;
            self.take_line(&line);
            if ended {
                self.whole_bytes = lines.offset();
            }
        }
        self.bytes = lines.offset();
        Ok(())
    }

    fn take_line(&mut self, line: &RawLine<'_>) {
        let bytes = trimmed(line.bytes);
        if bytes.is_empty() && !line.oversized {
            return;
        }
        let text = text_of_same_length(bytes);
        match Record::parse(&text) {
            Some(record) => {
                self.took_unended = !line.ended;
                self.push(line.offset, &record);
            }
            None if line.ended => self.garbage_lines += 1,
            None => self.ends_torn = true,
        }
    }

    /// Where the last line ends that a newline ends: what is appended later is read from there on.
    #[must_use]
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Whether what is appended can be taken by itself. Not when the last line was taken without its newline: what
    /// comes may go on with it.
    #[must_use]
    pub fn can_extend(&self) -> bool {
        !self.took_unended
    }

    /// About how much memory this takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let position = size_of::<(RecordId, u32)>() + 1;
        self.entries.capacity() * size_of::<Entry>() + self.positions.capacity() * position * 8 / 7
    }

    /// How many prompts there are, those of abandoned branches too.
    #[must_use]
    pub fn prompts(&self) -> u64 {
        self.prompts
    }

    /// Where the live branch's last message begins, and its uuid; none without chain records.
    #[must_use]
    pub fn live_end(&self) -> Option<Place> {
        let entry = &self.entries[self.live_leaf()?];
        Some(Place {
            offset: entry.offset,
            is_prompt: entry.role == Role::Prompt,
            id: entry.id.clone(),
        })
    }

    /// Takes one more record, which begins at `offset`, behind all that were taken.
    pub(in crate::transcript) fn push(&mut self, offset: u64, record: &Record<'_>) {
        self.push_with(offset, record, &record.header());
    }

    /// As [`Index::push`], for one whose header is known.
    pub(in crate::transcript) fn push_with(
        &mut self,
        offset: u64,
        record: &Record<'_>,
        header: &RecordHeader,
    ) {
        let Some(uuid) = &header.uuid else { return };
        let Ok(position) = u32::try_from(self.entries.len()) else {
            return;
        };
        let id = RecordId::new(uuid);
        let role = role_of(record, header);
        self.prompts += u64::from(role == Role::Prompt);
        self.positions.insert(id.clone(), position);
        self.entries.push(Entry {
            offset,
            id,
            parent: header.parent_uuid.as_deref().map(RecordId::new),
            logical_parent: header.logical_parent_uuid.as_deref().map(RecordId::new),
            message: header.message_id.as_ref().map_or(0, hash_of),
            role,
            is_sidechain: header.is_sidechain,
        });
    }

    /// Whether a record with this uuid was taken already.
    #[must_use]
    pub(in crate::transcript) fn holds(&self, uuid: &str) -> bool {
        self.positions.contains_key(&RecordId::new(uuid))
    }

    /// Where the records begin that name a parent which is not there, with its uuid.
    pub(in crate::transcript) fn missing_parents(&self) -> impl Iterator<Item = (u64, String)> {
        self.entries.iter().filter_map(|entry| {
            let parent = entry.parent.as_ref()?;
            (!self.positions.contains_key(parent)).then(|| (entry.offset, parent.text()))
        })
    }

    /// How many prompts stand before `offset`, those of abandoned branches too.
    pub(in crate::transcript) fn prompts_before(&self, offset: u64) -> usize {
        self.entries
            .iter()
            .take_while(|entry| entry.offset < offset)
            .filter(|entry| entry.role == Role::Prompt)
            .count()
    }

    /// How many bytes were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many whole lines were not records.
    #[must_use]
    pub fn garbage_lines(&self) -> u64 {
        self.garbage_lines
    }

    /// Whether the last line is a part of a record.
    #[must_use]
    pub fn ends_torn(&self) -> bool {
        self.ends_torn
    }

    /// The records of the branch that ends with `until`, or of the live branch. None when there is no such
    /// record, or no chain record at all.
    #[must_use]
    pub fn select(&self, until: Option<&str>, follow_compaction: bool) -> Option<Selection> {
        let leaf = match until {
            Some(uuid) => *self.positions.get(&RecordId::new(uuid))? as usize,
            None => self.live_leaf()?,
        };
        let Walk {
            mut on_branch,
            cut_by_compaction,
            broken_at,
        } = self.walk(leaf, follow_compaction);
        self.add_parallel_calls(leaf, &mut on_branch);
        let chosen = || {
            self.entries
                .iter()
                .zip(&on_branch)
                .filter(|(_, on)| **on)
                .map(|(entry, _)| entry)
        };
        Some(Selection {
            offsets: chosen().map(|entry| entry.offset).collect(),
            prompt_offsets: chosen()
                .filter(|entry| entry.role == Role::Prompt)
                .map(|entry| entry.offset)
                .collect(),
            leaf_offset: self.entries[leaf].offset,
            leaf_uuid: self.entries[leaf].id.text(),
            asides: chosen().filter(|entry| entry.role == Role::Aside).count(),
            cut_by_compaction,
            breaks: broken_at.len(),
            broken_at: broken_at.first().map(RecordId::text),
        })
    }

    /// The messages of a branch, in the order of the file.
    #[must_use]
    pub fn places(&self, selection: &Selection) -> Vec<Place> {
        let messages = self
            .entries
            .iter()
            .filter(|entry| entry.role != Role::Other && selection.contains(entry.offset));
        messages
            .map(|entry| Place {
                offset: entry.offset,
                is_prompt: entry.role == Role::Prompt,
                id: entry.id.clone(),
            })
            .collect()
    }

    /// The uuid of the last record on the branch that ends with `until` or of the live one whose message has
    /// this id.
    #[must_use]
    pub fn last_of_message(&self, selection: &Selection, message_id: &str) -> Option<String> {
        let wanted = hash_of(&message_id);
        self.entries
            .iter()
            .rev()
            .filter(|entry| entry.message == wanted)
            .find(|entry| selection.contains(entry.offset))
            .map(|entry| entry.id.text())
    }

    /// Whether the last turn of the live branch is over: its last message is a reply's text with which the model ended,
    /// an error in place of one, or the mark of an interruption. Commands of the agent's own behind it do not count.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn live_turn_ended(&self, mut reader: impl BufRead + Seek) -> io::Result<bool> {
        let mut position = self.live_leaf();
        let mut steps = 0;
        while let Some(at) = position
            && matches!(self.entries[at].role, Role::Aside | Role::Other)
            && steps < self.entries.len()
        {
            let parent = self.entries[at].parent.as_ref();
            position = parent.and_then(|parent| self.positions.get(parent).map(|next| *next as usize));
            steps += 1;
        }
        let Some(entry) = position.map(|position| &self.entries[position]) else {
            return Ok(false);
        };
        reader.seek(SeekFrom::Start(entry.offset))?;
        let mut lines = Lines::new(reader, entry.offset);
        let Some(line) = lines.next_line()? else {
            return Ok(false);
        };
        let text = line_text(line.bytes);
        let record = Record::parse(&text).filter(|record| {
            let uuid = record.fields.text("uuid");
            uuid.is_some_and(|uuid| RecordId::new(&uuid) == entry.id)
        });
        Ok(record.is_some_and(|record| record.ends_turn()))
    }

    /// The last message, and only where there is none the last record: marks of the agent's own may be written
    /// late, below an older parent, and would hide the prompt that came meanwhile.
    fn live_leaf(&self) -> Option<usize> {
        let main = |entry: &&Entry| !entry.is_sidechain;
        let position = |entry: &Entry| self.positions.get(&entry.id).map(|position| *position as usize);
        let message = self
            .entries
            .iter()
            .rev()
            .filter(main)
            .find(|entry| entry.role != Role::Other);
        message
            .or_else(|| self.entries.iter().rev().find(main))
            .and_then(position)
    }

    /// Goes from `leaf` to the beginning.
    ///
    /// Where a parent is named and not there it goes on with the record that stands before, as Claude Code was seen to
    /// do (2.1.316): what is lost is the damaged record alone, not all that came before it.
    fn walk(&self, leaf: usize, follow_compaction: bool) -> Walk {
        let mut walk = Walk {
            on_branch: vec![false; self.entries.len()],
            cut_by_compaction: false,
            broken_at: Vec::new(),
        };
        let mut position = leaf;
        loop {
            walk.on_branch[position] = true;
            let entry = &self.entries[position];
            let logical = || entry.logical_parent.as_ref().filter(|_| follow_compaction);
            let Some(parent) = entry.parent.as_ref().or_else(logical) else {
                return walk;
            };
            position = match self.positions.get(parent).map(|next| *next as usize) {
                Some(next) if !walk.on_branch[next] => next,
                // What was compacted away is no longer part of what the model is sent, and may stay behind in a fork.
                None if entry.parent.is_none() => {
                    walk.cut_by_compaction = true;
                    return walk;
                }
                // A circle is damage; what was gathered so far is all that there is.
                Some(_) => {
                    walk.broken_at.push(parent.clone());
                    return walk;
                }
                None => {
                    walk.broken_at.push(parent.clone());
                    let before = (0..position)
                        .rev()
                        .find(|before| !self.entries[*before].is_sidechain && !walk.on_branch[*before]);
                    let Some(before) = before else { return walk };
                    before
                }
            };
        }
    }

    /// Calls that one reply makes in parallel hang in a fan, of which the chain of parents passes only one
    /// spoke. The others belong to the branch too: blocks of the same message, and results of its calls.
    fn add_parallel_calls(&self, leaf: usize, on_branch: &mut [bool]) {
        let messages: HashSet<u64> = self
            .entries
            .iter()
            .zip(on_branch.iter())
            .filter(|(entry, on)| **on && entry.role == Role::Assistant && entry.message != 0)
            .map(|(entry, _)| entry.message)
            .collect();
        for position in 0..leaf {
            let entry = &self.entries[position];
            if on_branch[position] || entry.is_sidechain {
                continue;
            }
            let parent = entry
                .parent
                .as_ref()
                .and_then(|parent| self.positions.get(parent));
            let Some(parent) = parent
                .map(|parent| *parent as usize)
                .filter(|parent| on_branch[*parent])
            else {
                continue;
            };
            on_branch[position] = match entry.role {
                Role::Assistant => messages.contains(&entry.message),
                Role::ToolResult => messages.contains(&self.entries[parent].message),
                _ => false,
            };
        }
    }
}

impl Selection {
    /// Where the branch's records begin, ascending.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Where its prompts begin, ascending.
    #[must_use]
    pub fn prompt_offsets(&self) -> &[u64] {
        &self.prompt_offsets
    }

    /// Where its last record begins.
    #[must_use]
    pub fn leaf_offset(&self) -> u64 {
        self.leaf_offset
    }

    /// The uuid of its last record.
    #[must_use]
    pub fn leaf_uuid(&self) -> &str {
        &self.leaf_uuid
    }

    /// How many commands of the agent's own, and their output, are on it.
    #[must_use]
    pub fn asides(&self) -> usize {
        self.asides
    }

    /// Whether it begins with a compaction whose past is not in this file.
    #[must_use]
    pub fn cut_by_compaction(&self) -> bool {
        self.cut_by_compaction
    }

    /// How often a parent is named that is not there: each time something is lost.
    #[must_use]
    pub fn breaks(&self) -> usize {
        self.breaks
    }

    /// The uuid of the last parent that is named and not there.
    #[must_use]
    pub fn broken_at(&self) -> Option<&str> {
        self.broken_at.as_deref()
    }

    /// Whether the record that begins at `offset` is on the branch.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.offsets.binary_search(&offset).is_ok()
    }

    /// Where the last `count` turns begin, or all; none when there is no turn or none is wanted.
    #[must_use]
    pub fn start_of_last_turns(&self, count: Option<usize>) -> Option<u64> {
        let skipped = count.map_or(0, |count| self.prompt_offsets.len().saturating_sub(count));
        self.prompt_offsets.get(skipped).copied()
    }
}

fn role_of(record: &Record<'_>, header: &RecordHeader) -> Role {
    match header.kind {
        RecordKind::Assistant => Role::Assistant,
        RecordKind::User if record.is_human_prompt(header) => Role::Prompt,
        RecordKind::User if header.has_tool_use_result => Role::ToolResult,
        RecordKind::User if record.is_aside(header) => Role::Aside,
        RecordKind::User => Role::OtherUser,
        _ => Role::Other,
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish().max(1)
}
