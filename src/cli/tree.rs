//! Draws a conversation with its sessions, steps and forks as a tree.
//!
//! It owns the layout of the tree. Pure: objects of the contract in, lines out. It must not know where they come from.

use std::collections::BTreeSet;

use anstyle::Style;
use bridge_protocol::conversation::TreeMember;
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{LineageEntry, LineageReason};
use bridge_protocol::{CheckpointId, ConversationId, UpstreamId};

use unicode_width::UnicodeWidthStr;

use super::humanize;
use super::output::{ATTENTION, GOOD, Look, STRONG, one_line, truncate, truncate_middle};
use super::prompt_text::readable_prompt;
use super::table::{Cell, dim, plain};

#[cfg(test)]
mod tests;

/// How many of the newest steps of a session are drawn.
const STEPS_DRAWN: usize = 5;

/// The minimum width to which a part of a line is cut.
const MIN_PART_COLUMNS: usize = 8;

/// The width that such a part needs to be useful. If it would be narrower, other parts are omitted.
const USEFUL_PART_COLUMNS: usize = 20;

/// How many columns of a step's prompt are drawn.
const PROMPT_COLUMNS: usize = 40;

/// A conversation of the tree.
#[derive(Clone, Debug)]
pub(super) struct TreeConversation {
    /// The conversation, its chain and its lineage.
    pub(super) member: TreeMember,
    /// The newest steps of its history, oldest first.
    pub(super) steps: Vec<Checkpoint>,
}

/// A part of a line with its style.
type Part = (Cell, NarrowFit);

/// A line with the lines below it.
struct Node {
    parts: Vec<Part>,
    children: Vec<Node>,
}

/// What happens to a part of a line if the terminal is too narrow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NarrowFit {
    /// It is always shown in full.
    Keep,
    /// Its middle is cut out.
    TruncateMiddle,
    /// It is omitted; the part with the lowest number first.
    Omit(u8),
}

impl Node {
    /// Renders the line in this many columns, of which `taken` are used already.
    fn render(&self, taken: usize, look: Look) -> String {
        let columns = look.columns.unwrap_or(usize::MAX);
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        let width = |parts: &[&Part], most: usize| {
            let widths = parts.iter().map(|((text, _), fit)| match fit {
                NarrowFit::TruncateMiddle => text.width().min(most),
                _ => text.width(),
            });
            taken + widths.sum::<usize>()
        };
        let left_out = |(_, fit): &&Part| match fit {
            NarrowFit::Omit(order) => Some(*order),
            _ => None,
        };
        while width(&parts, USEFUL_PART_COLUMNS) > columns
            && let Some(first) = parts.iter().filter_map(left_out).min()
        {
            parts.retain(|(_, fit)| *fit != NarrowFit::Omit(first));
        }
        let room = columns.saturating_sub(width(&parts, 0)).max(MIN_PART_COLUMNS);
        let parts = parts.iter().map(|((text, style), how)| {
            let width = match how {
                NarrowFit::TruncateMiddle => room,
                _ => usize::MAX,
            };
            look.paint(*style, &truncate_middle(text, width, look))
        });
        parts.collect()
    }

    fn draw(&self, lines: &mut Vec<String>, first: &str, rest: &str, look: Look) {
        lines.push(format!("{first}{}", self.render(first.width(), look)));
        for (index, node) in self.children.iter().enumerate() {
            let (branch, down) = match index + 1 == self.children.len() {
                true => (look.sign("└─ ", "`- "), "   "),
                false => (look.sign("├─ ", "|- "), look.sign("│  ", "|  ")),
            };
            node.draw(lines, &format!("{rest}{branch}"), &format!("{rest}{down}"), look);
        }
    }
}

/// Draws the tree, starting with the first conversation. `asked_for` is marked if it is another one.
pub(super) fn draw(
    members: &[TreeConversation],
    asked_for: Option<ConversationId>,
    look: Look,
) -> Vec<String> {
    let Some(root) = members.first() else {
        return Vec::new();
    };
    let asked_for = asked_for.filter(|id| *id != root.member.conversation.id);
    let picture = TreeDrawing {
        members,
        asked_for,
        look,
    };
    let mut lines = Vec::new();
    picture.conversation(root, None).draw(&mut lines, "", "", look);
    lines
}

struct TreeDrawing<'a> {
    members: &'a [TreeConversation],
    asked_for: Option<ConversationId>,
    look: Look,
}

impl TreeDrawing<'_> {
    /// A conversation with its sessions below it, oldest first. Each session has its newest steps and the forks that began in
    /// it.
    fn conversation(&self, member: &TreeConversation, parent: Option<&TreeConversation>) -> Node {
        let conversation = &member.member.conversation;
        let forks = |from: Option<&UpstreamId>| {
            let forks = self
                .members
                .iter()
                .filter(move |fork| self.origin(fork, member) == Some(from));
            forks
                .map(|fork| self.conversation(fork, Some(member)))
                .collect::<Vec<Node>>()
        };
        let fork_step = self.fork_step(member, parent);
        let mut children: Vec<Node> = sessions(member)
            .into_iter()
            .map(|session| {
                let id = &session.entry.upstream_id;
                let mut children = self.steps(member, id, fork_step.unwrap_or_default());
                children.extend(forks(Some(id)));
                let parts = self.session(member, &session);
                Node { parts, children }
            })
            .collect();
        children.extend(forks(None));
        let title = match one_line(&conversation.title) {
            title if title.is_empty() => title,
            title => format!(" \"{title}\""),
        };
        let agent = format!("{}, ", one_line(conversation.agent.as_str()));
        let state = humanize::wire_name(conversation.state);
        let at = fork_step.map_or_else(String::new, |step| format!(", forked after turn {step}"));
        let mark = match self.asked_for == Some(conversation.id) {
            true => self.look.sign("  ← this", "  <- this"),
            false => "",
        };
        let parts = vec![
            ((humanize::short_id(conversation.id), STRONG), NarrowFit::Keep),
            (plain(title), NarrowFit::TruncateMiddle),
            (dim(" ("), NarrowFit::Keep),
            (dim(agent), NarrowFit::Omit(0)),
            (dim(format!("{state}{at})")), NarrowFit::Keep),
            ((mark.to_owned(), ATTENTION), NarrowFit::Keep),
        ];
        Node { parts, children }
    }

    /// The session of `parent` in which `fork` began. Returns `None` if it is not a fork of `parent`, and `Some(None)` if the
    /// session is unknown.
    fn origin<'m>(
        &self,
        fork: &TreeConversation,
        parent: &'m TreeConversation,
    ) -> Option<Option<&'m UpstreamId>> {
        if fork.member.conversation.parent.as_ref()?.conversation_id != parent.member.conversation.id {
            return None;
        }
        let from = fork
            .member
            .entries
            .iter()
            .find_map(|entry| entry.from_upstream_id.as_ref());
        let known = parent.member.entries.iter().map(|entry| &entry.upstream_id);
        Some(known.into_iter().find(|id| Some(*id) == from))
    }

    /// The step of its parent after which a conversation began. Either of them may have dropped that step since.
    fn fork_step(&self, member: &TreeConversation, parent: Option<&TreeConversation>) -> Option<u64> {
        let at = member
            .member
            .conversation
            .parent
            .as_ref()?
            .checkpoint_id
            .as_ref()?;
        parent
            .and_then(|parent| step_of(at, &parent.steps))
            .or_else(|| step_of(at, &member.steps))
    }

    /// The newest steps of a session, as `--at` accepts them, and the steps after which a fork began. Steps up to `drawn` are
    /// omitted, because the parent's part of the tree shows them.
    fn steps(&self, member: &TreeConversation, id: &UpstreamId, drawn: u64) -> Vec<Node> {
        let of_session = member.steps.iter().filter(|step| step.upstream_id == *id);
        let of_session: Vec<_> = of_session.collect();
        let newest = of_session.len().saturating_sub(STEPS_DRAWN);
        let forked: BTreeSet<u64> = self
            .members
            .iter()
            .filter(|fork| {
                let parent = fork.member.conversation.parent.as_ref();
                parent.is_some_and(|parent| parent.conversation_id == member.member.conversation.id)
            })
            .filter_map(|fork| self.fork_step(fork, Some(member)))
            .collect();
        let is_drawn = |index: usize, step: &Checkpoint| {
            step.step > drawn && (index >= newest || forked.contains(&step.step))
        };
        let steps = of_session.into_iter().enumerate();
        let steps: Vec<_> = steps.map(|(index, step)| (is_drawn(index, step), step)).collect();
        let mut lines = Vec::new();
        for run in steps.chunk_by(|one, next| one.0 == next.0) {
            match run {
                [(false, _), ..] => {
                    let earlier = humanize::count(run.len() as u64, "earlier turn", "earlier turns");
                    let line = format!("{} {earlier}", self.look.sign("…", "..."));
                    lines.push(vec![(dim(line), NarrowFit::Keep)]);
                }
                _ => lines.extend(run.iter().map(|(_, step)| self.turn(step))),
            }
        }
        let node = |parts| Node {
            parts,
            children: Vec::new(),
        };
        lines.into_iter().map(node).collect()
    }

    fn turn(&self, step: &Checkpoint) -> Vec<Part> {
        let prompt = match one_line(&readable_prompt(&step.prompt)) {
            // A picture has no text.
            empty if empty.is_empty() => "[no text]".to_owned(),
            prompt => format!("\"{}\"", truncate(&prompt, PROMPT_COLUMNS, self.look)),
        };
        let number = format!("turn {} ", step.step);
        vec![
            (dim(number), NarrowFit::Keep),
            (dim(prompt), NarrowFit::TruncateMiddle),
        ]
    }

    fn session(&self, member: &TreeConversation, session: &DrawnSession) -> Vec<Part> {
        let at = session
            .entry
            .from_checkpoint_id
            .as_ref()
            .and_then(|at| step_of(at, &member.steps));
        let after = at.map_or_else(String::new, |step| format!(" after turn {step}"));
        let id = &session.entry.upstream_id;
        let left = humanize::sessions_left_by_undo(&member.member.entries);
        let mark = match (session.is_abandoned, session.is_in_chain) {
            (true, _) => ", abandoned",
            _ if left.contains(id) => ", undone",
            (false, false) => ", no longer in the chain",
            (false, true) => "",
        };
        let is_head = member
            .member
            .links
            .last()
            .is_some_and(|link| link.upstream_id == *id);
        let (sign, style, head) = match is_head {
            true => (
                self.look.sign("●", "*"),
                GOOD,
                self.look.sign("  ← head", "  <- head"),
            ),
            false => (self.look.sign("○", "o"), Style::new(), ""),
        };
        let whole = |cell| (cell, NarrowFit::Keep);
        let mut parts: Vec<Part> = vec![
            whole((format!("{sign} "), style)),
            whole(dim(format!("{} ", humanize::short(id.as_str())))),
        ];
        let origin = humanize::origin(&session.entry, &after, Some(session.entry.turns));
        for (at, (order, text)) in origin.into_iter().enumerate() {
            let text = if at == 0 { text } else { format!(", {text}") };
            parts.push((plain(text), order.map_or(NarrowFit::Keep, NarrowFit::Omit)));
        }
        parts.push(whole(plain(mark)));
        parts.push(whole((head.to_owned(), ATTENTION)));
        parts
    }
}

/// An upstream session of a conversation.
struct DrawnSession {
    /// The entry that created it, with its current number of turns.
    entry: LineageEntry,
    is_abandoned: bool,
    is_in_chain: bool,
}

/// The sessions of a conversation in the order of their creation.
fn sessions(member: &TreeConversation) -> Vec<DrawnSession> {
    let mut sessions: Vec<DrawnSession> = Vec::new();
    for entry in &member.member.entries {
        let id = &entry.upstream_id;
        let place = sessions
            .iter()
            .position(|session| session.entry.upstream_id == *id);
        // The end of a chain makes no session, but has the last count of its head.
        let ends_chain = matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted);
        if id.is_empty() || ends_chain && place.is_none() {
            continue;
        }
        let place = place.unwrap_or_else(|| {
            sessions.push(DrawnSession {
                entry: entry.clone(),
                is_abandoned: false,
                is_in_chain: false,
            });
            sessions.len() - 1
        });
        let session = &mut sessions[place];
        let most = |of: fn(&LineageEntry) -> u64| of(&session.entry).max(of(entry));
        let (turns, carried) = (most(|entry| entry.turns), most(|entry| entry.carried_turns));
        match entry.reason {
            LineageReason::Updated | LineageReason::Reset | LineageReason::Deleted => {}
            LineageReason::Abandoned => session.is_abandoned = true,
            // Keep the entry that created the session: later changes, such as a move, do not replace it.
            _ => {
                if matches!(
                    session.entry.reason,
                    LineageReason::Updated | LineageReason::Abandoned
                ) {
                    session.entry = entry.clone();
                }
                session.is_abandoned = false;
            }
        }
        (session.entry.turns, session.entry.carried_turns) = (turns, carried);
    }
    for link in &member.member.links {
        let mut of_link = sessions
            .iter_mut()
            .filter(|session| session.entry.upstream_id == link.upstream_id);
        if let Some(session) = of_link.next() {
            session.is_in_chain = true;
            (session.entry.turns, session.entry.carried_turns) = (link.turns, link.carried_turns);
        }
    }
    sessions
}

/// The number of a checkpoint in a history that contains it or a copy of it.
fn step_of(at: &CheckpointId, steps: &[Checkpoint]) -> Option<u64> {
    let mut found = steps
        .iter()
        .filter(|step| step.id == *at || step.origin.as_ref() == Some(at));
    found.next().map(|step| step.step)
}
