//! Cuts a transcript: a branch of it under a new id, as Claude's own fork writes one.
//!
//! Owns what becomes of each record (Claude Code 2.1.316, and the vendor's library of that version, which makes the forks of
//! the ACP adapter). Each record of the branch gets a new uuid and says whose copy it is (`forkedFrom`); what refers to a
//! uuid refers to the new one: parents, also those before a compaction, what a compaction kept, queued prompts. What says
//! of a record whose subagent or plan it was is left out. Beside the branch what counts for a session as a whole comes along,
//! and whatever is not known; the log of requests, the queue, counters, snapshots of files and notes of places do not: the
//! agent makes them anew, or they are kept under the other session's id. Unlike the agent's own fork this follows the branch
//! alone, keeps marks of progress, which resumes pass over, leaves times and titles as they are, and takes the files along
//! that the records name.
//!
//! One pass over the bytes, none of which is decoded that does not change; the new uuids are made of the old ones by a keyed
//! hash, so that no table of them is held. The source is only read, and what was noted of it must still be so: else the cut
//! fails. Blocks; knows nothing of why a transcript is cut.

mod members;
mod source;

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use uuid::{Builder, Uuid};

use super::TranscriptError;
use super::claude::{Index, Join, Selection};
use super::copy::{self, session_of};
use super::fields::{Fields, Json, lenient_text};
use super::lines::{text_of_same_length, trimmed};
use super::side_files::Beside;
use members::{Member, Members, Name};
use source::{Found, HELD_LINE_BYTES, Source};

/// Records without a parent that do not come along: see above.
const LEFT_OUT: [&str; 11] = [
    "api-request",
    "api-request-blob",
    "api-request-shape",
    "attribution-snapshot",
    "continued-in",
    "cost-state",
    "ended-by-model",
    "file-history-delta",
    "file-history-snapshot",
    "last-prompt",
    "queue-operation",
];

/// How lines of the log of requests begin, which are the longest of those.
const REQUEST_LOG: &[u8] = br#"{"type":"api-request"#;

/// Kinds of records that hang in a chain; without a parent on the branch they are none of it.
const CHAIN: [&str; 5] = ["user", "assistant", "attachment", "system", "progress"];

/// Cuts the branch that ends with the record `last_uuid` into `folder`, which is made when it is missing, and gives the new
/// transcript's path. What the agent wrote behind that record for itself, before the next prompt, comes along: the model would
/// else be told it anew, and in other words than the source's next request. `index` says where the records of `source` stand. Where a parent is not there the copy names the record
/// that takes its place.
///
/// # Errors
/// [`TranscriptError::RecordNotFound`] when there is no such record, [`TranscriptError::InvalidId`] for a new id that is no
/// file name, [`TranscriptError::AlreadyExists`] when it is taken, [`TranscriptError::Io`] otherwise, also when the source is
/// no longer what was noted of it. Nothing is left behind by a failure.
pub fn cut(
    source: &Path,
    index: &Index,
    folder: &Path,
    new_id: &str,
    last_uuid: &str,
) -> Result<PathBuf, TranscriptError> {
    let branch =
        index
            .select_up_to_next_prompt(last_uuid)
            .ok_or_else(|| TranscriptError::RecordNotFound {
                path: source.to_owned(),
                uuid: last_uuid.to_owned(),
            })?;
    let file = File::open(source).map_err(TranscriptError::io("open", source))?;
    let lines = Source::new(file, index.bytes(), HELD_LINE_BYTES);
    copy::make_folder(folder)?;
    let mut files = Beside::new(source, folder, new_id);
    let made = copy::create_in(folder, new_id, |writer| {
        let mut cutter = Cutter::new(index, &branch, session_of(source), new_id, &mut files);
        let cut = cutter.write(lines, writer);
        // Before the transcript has a name, so that none ever names files that are not there.
        let cut = cut.and_then(|()| files.settle());
        cut.map_err(TranscriptError::io("cut", source))
    })?;
    files.keep();
    Ok(made)
}

/// Copies the files that the records of a transcript name from the folders of other sessions into the folder of its own. For a fork
/// that the agent made: the agent leaves the files where they were, and they would be lost with the other session. The transcript
/// is the agent's and stays as it is, so the paths in its texts still lead to the other session's folder. May be called again
/// after a kill.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn bring_files(transcript: &Path) -> Result<(), TranscriptError> {
    // A kill may have left it.
    copy::remove_unfinished_files(transcript)?;
    let bring = || {
        let file = File::open(transcript)?;
        let end = file.metadata()?.len();
        let folder = transcript.parent().unwrap_or(Path::new(""));
        let mut files = Beside::new(transcript, folder, session_of(transcript));
        let mut lines = Source::new(file, end, HELD_LINE_BYTES);
        let mut offset = 0;
        while let Some(line) = lines.line(offset)? {
            offset = line.next();
            if let Some(held) = lines.held(&line) {
                files.record(held)?;
            }
        }
        files.join()
    };
    bring().map_err(TranscriptError::io("bring the files beside", transcript))
}

/// Makes new uuids of old ones: the same of the same, in one cut.
#[derive(Debug)]
struct Renaming<'a> {
    new_id: &'a str,
    /// What was asked for last: mostly a record's uuid, and next its child's parent.
    last: (String, String),
}

impl Renaming<'_> {
    fn of(&mut self, old: &str) -> &str {
        if self.last.0 != old {
            let uuid = Uuid::try_parse(old);
            let half = |half: u8| {
                let mut hasher = DefaultHasher::new();
                // Nobody knows the new id before, so that no two old ones can be made for the same new one.
                (half, self.new_id).hash(&mut hasher);
                match &uuid {
                    // In whatever way it is written.
                    Ok(uuid) => uuid.hash(&mut hasher),
                    Err(_) => old.hash(&mut hasher),
                }
                hasher.finish()
            };
            let bytes = (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes();
            let new = Builder::from_random_bytes(bytes).into_uuid().to_string();
            self.last = (old.to_owned(), new);
        }
        &self.last.1
    }

    fn token(&mut self, old: &str) -> Vec<u8> {
        format!("\"{}\"", self.of(old)).into_bytes()
    }
}

/// What is to stand at which place of a line.
type Edits = Vec<(Range<usize>, Vec<u8>)>;

struct Cutter<'a, 'b> {
    index: &'a Index,
    branch: &'a Selection,
    old_id: &'a str,
    new_id: &'a str,
    renaming: Renaming<'a>,
    /// How it is told whose copy a record is, up to that one's uuid.
    from: Vec<u8>,
    edits: Edits,
    files: &'b mut Beside<'a>,
}

impl<'a, 'b> Cutter<'a, 'b> {
    fn new(
        index: &'a Index,
        branch: &'a Selection,
        old_id: &'a str,
        new_id: &'a str,
        files: &'b mut Beside<'a>,
    ) -> Self {
        Self {
            index,
            branch,
            old_id,
            new_id,
            renaming: Renaming {
                new_id,
                last: <(String, String)>::default(),
            },
            from: [br#"{"sessionId":"#, &token(old_id)[..], br#","messageUuid":"#].concat(),
            edits: Edits::new(),
            files,
        }
    }

    fn write(&mut self, mut source: Source, writer: &mut dyn Write) -> io::Result<()> {
        let mut members = Members::default();
        let mut on_branch = self.branch.offsets().iter().copied().peekable();
        // Mostly the leaf; parents may have been written late.
        let last = self.branch.offsets().last().copied().unwrap_or_default();
        let mut behind = self.index.session_wide_behind(last).iter().copied();
        let mut next = Some(0);
        while let Some(offset) = next {
            let Some(line) = source.line(offset)? else { break };
            next = match line.offset < last {
                true => Some(line.next()),
                false => behind.next(),
            };
            let is_on_branch = on_branch.next_if_eq(&line.offset).is_some();
            if !is_on_branch && !self.may_come_along(&source, &line) {
                continue;
            }
            members.clear();
            source.each_piece(&line, |piece| members.feed(piece))?;
            self.edits.clear();
            let held = source.held(&line);
            if is_on_branch {
                let join = self.join(line.offset);
                self.record(held, &members, line.offset, join)?;
            } else if !self.beside(&members) {
                continue;
            }
            if let Some(line) = held {
                let named = self.files.record(line)?.into_iter();
                self.edits
                    .extend(named.map(|(place, text)| (place, text.into_bytes())));
            }
            self.edits.sort_by_key(|(place, _)| place.start);
            let mut written = 0;
            for (place, value) in &self.edits {
                source.copy(&line, written..place.start, writer)?;
                writer.write_all(value)?;
                written = place.end;
            }
            let end = usize::try_from(line.bytes).map_err(|_| changed())?;
            source.copy(&line, written..end, writer)?;
            // Also where it had none, for what is appended later.
            writer.write_all(b"\n")?;
        }
        match on_branch.next() {
            Some(_) => Err(changed()),
            None => Ok(()),
        }
    }

    /// Whether a line that is not on the branch may have to come along, as far as its beginning tells.
    fn may_come_along(&self, source: &Source, line: &Found) -> bool {
        // Behind the end of the branch only what is about the session as a whole counts.
        let leaf = self.branch.leaf_offset();
        if line.offset > leaf {
            let behind = self.index.session_wide_behind(leaf);
            if behind.binary_search(&line.offset).is_err() {
                return false;
            }
        }
        let Some(held) = source.held(line) else {
            return true;
        };
        !held.starts_with(REQUEST_LOG) && Fields::parse(&text_of_same_length(trimmed(held))).is_some()
    }

    /// Whether a record that is not on the branch comes along, and what is changed of it then.
    fn beside(&mut self, members: &Members) -> bool {
        let kind = members.text(Name::Type);
        let kind = kind.as_deref().unwrap_or_default();
        if LEFT_OUT.contains(&kind) || members.end().is_none() {
            return false;
        }
        let names = |name| members.all().iter().any(|member| member.name == name);
        // Of a branch that is left.
        if names(Name::Uuid) && (CHAIN.contains(&kind) || names(Name::ParentUuid)) {
            return false;
        }
        for member in members.all() {
            let Some(text) = members.text_of(member) else {
                continue;
            };
            let value = match member.name {
                Name::SessionId if text == self.old_id => token(self.new_id),
                Name::Uuid => self.renaming.token(&text),
                Name::LeafUuid if !self.holds(&text) => return false,
                Name::LeafUuid => self.renaming.token(&text),
                _ => continue,
            };
            self.edits.push((member.value.clone(), value));
        }
        true
    }

    /// What is changed of a record on the branch.
    fn record(
        &mut self,
        held: Option<&[u8]>,
        members: &Members,
        offset: u64,
        join: Option<&Join>,
    ) -> io::Result<()> {
        let end = members.end().ok_or_else(changed)?;
        let uuid = members.text(Name::Uuid).ok_or_else(changed)?;
        if !self.index.is_at(offset, &uuid) {
            return Err(changed());
        }
        let mut from = self.from.clone();
        from.extend(token(&uuid));
        from.push(b'}');
        let (mut has_session, mut has_origin) = (false, false);
        for member in members.all() {
            let text = || members.text_of(member);
            let value = match member.name {
                Name::Uuid => text().map(|text| self.renaming.token(&text)),
                Name::ParentUuid => self.parent(text().as_deref(), join),
                Name::LogicalParentUuid => text().map(|text| match self.holds(&text) {
                    true => self.renaming.token(&text),
                    false => b"null".to_vec(),
                }),
                Name::SessionId => {
                    has_session = true;
                    Some(token(self.new_id))
                }
                Name::ForkedFrom => {
                    has_origin = true;
                    Some(from.clone())
                }
                Name::CompactMetadata => held.and_then(|line| self.compaction(line, member)),
                Name::Attachment => {
                    if let Some(line) = held {
                        self.attachment(line, member);
                    }
                    None
                }
                _ => None,
            };
            self.edits
                .extend(value.map(|value| (member.value.clone(), value)));
        }
        self.edits
            .extend(members.left_out().map(|place| (place, Vec::new())));
        let mut more = Vec::new();
        if members.text(Name::Subtype).as_deref() == Some("model_refusal_fallback") {
            more.extend_from_slice(br#","neutralizedByFork":true"#);
        }
        if !has_session {
            more.extend_from_slice(br#","sessionId":"#);
            more.extend(token(self.new_id));
        }
        if !has_origin {
            more.extend_from_slice(br#","forkedFrom":"#);
            more.extend_from_slice(&from);
        }
        self.edits.push((end..end, more));
        Ok(())
    }

    /// The parent of a record, where it changes.
    fn parent(&mut self, named: Option<&str>, join: Option<&Join>) -> Option<Vec<u8>> {
        match join {
            Some(join) => Some(match &join.parent {
                Some(parent) => self.renaming.token(parent),
                None => b"null".to_vec(),
            }),
            None => named.map(|parent| self.renaming.token(parent)),
        }
    }

    /// What a compaction says of the messages that it kept, with their new uuids.
    fn compaction(&mut self, line: &[u8], member: &Member) -> Option<Vec<u8>> {
        const IDS: [&str; 5] = ["anchorUuid", "uuids", "allUuids", "headUuid", "tailUuid"];
        let text = text_of_same_length(line.get(member.value.clone())?);
        let mut said: Value = serde_json::from_str(&text).ok()?;
        let said = said.as_object_mut()?;
        // Of what was under way in the other session.
        let mut is_changed = said.remove("runningTurnSends").is_some();
        for kept in ["preservedMessages", "preservedSegment"] {
            let Some(kept) = said.get_mut(kept).and_then(Value::as_object_mut) else {
                continue;
            };
            for name in IDS {
                if let Some(ids) = kept.get_mut(name) {
                    *ids = self.renamed(ids.take());
                    is_changed = true;
                }
            }
        }
        is_changed.then(|| Value::Object(std::mem::take(said)).to_string().into_bytes())
    }

    fn renamed(&mut self, ids: Value) -> Value {
        match ids {
            Value::String(id) if self.holds(&id) => Value::from(self.renaming.of(&id)),
            Value::Array(ids) => ids.into_iter().map(|id| self.renamed(id)).collect(),
            other => other,
        }
    }

    /// What an attachment says of other records: the prompt that was queued, and where tools were announced.
    fn attachment(&mut self, line: &[u8], member: &Member) {
        let Some(value) = line.get(member.value.clone()) else {
            return;
        };
        let names = |name: &[u8]| memchr::memmem::find(value, name).is_some();
        if !names(b"\"source_uuid\"") && !names(b"\"nameOnlyAnnouncements\"") {
            return;
        }
        let text = text_of_same_length(value);
        let Some(said) = Fields::parse(&text) else { return };
        let at = |place: Range<usize>| place.start + member.value.start..place.end + member.value.start;
        match said.text("type").as_deref() {
            Some("queued_command") => {
                let source = said.text("source_uuid").filter(|uuid| self.holds(uuid));
                if let (Some(uuid), Some(place)) = (source, said.place(&text, "source_uuid")) {
                    let value = self.renaming.token(&uuid);
                    self.edits.push((at(place), value));
                }
            }
            Some("deferred_tools_record") => {
                let (Some(announced), Some(place)) = (
                    said.array("nameOnlyAnnouncements"),
                    said.place(&text, "nameOnlyAnnouncements"),
                ) else {
                    return;
                };
                let announced = announced.into_iter().map(Json::get).filter_map(lenient_text);
                let kept: Vec<String> = announced.filter(|uuid| self.holds(uuid)).collect();
                let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
                let new: Vec<Value> = kept
                    .iter()
                    .map(|uuid| Value::from(self.renaming.of(uuid)))
                    .collect();
                self.edits
                    .push((at(place), Value::from(new).to_string().into_bytes()));
            }
            _ => {}
        }
    }

    fn holds(&self, uuid: &str) -> bool {
        let offset = self.index.offset_of(uuid);
        offset.is_some_and(|offset| self.branch.contains(offset))
    }

    fn join(&self, offset: u64) -> Option<&'a Join> {
        let joins = self.branch.joins();
        let place = joins.binary_search_by_key(&offset, |join| join.offset).ok()?;
        joins.get(place)
    }
}

fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the transcript is no longer what it was when it was read; try again",
    )
}

fn token(text: &str) -> Vec<u8> {
    if text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return [b"\"", text.as_bytes(), b"\""].concat();
    }
    Value::from(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests;
