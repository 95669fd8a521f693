//! What the events of a conversation change in the view of it, and how each is shown.
//!
//! It decides which events belong to the followed turn, and what is printed about the others. It must not wait for events: the loop
//! in `turn` does.

use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::history::HistoryForm;
use bridge_protocol::link::{Fidelity, Resumed, RollCause};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{Interrupt, TurnResult};

use super::{OwnTurn, Start, Talk};
use crate::cli::advice::Call;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::Followed;
use crate::cli::output::{ATTENTION, DIM, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::spoken::spoken;
use crate::cli::words::{self, Clock};
use crate::paths::shell_word;

/// How many messages of the last turn are shown, from its end.
const SHOWN_MESSAGES: u32 = 200;

/// Says what another client changed about the history or the folder.
pub(in crate::cli::talk) fn change_elsewhere(event: &Event, id: ConversationId) -> Option<String> {
    Some(match event {
        Event::Edited { dropped, .. } => {
            format!(
                "Another client replaced {}",
                words::count(*dropped, "turn", "turns")
            )
        }
        Event::Forked { conversation_id, .. } if *conversation_id == id => {
            "Another client rewound the conversation".to_owned()
        }
        Event::Undone { .. } => "Another client undid the last change".to_owned(),
        Event::Moved { to, .. } => format!("Another client moved the conversation to {}", one_line(to)),
        Event::Reset {} => "Another client reset the conversation".to_owned(),
        _ => return None,
    })
}

impl Talk<'_> {
    /// Says what became of a turn that waited for its limit, or of a scheduled prompt, when this prompt was answered first.
    pub(super) async fn note_displaced(&mut self, daemon: &Daemon, waiting: &Conversation) -> Outcome {
        // What cannot be read now can be seen later.
        let Ok(now) = daemon.call(method::GetConversation::of(self.id)).await else {
            return Ok(());
        };
        if now.conversation.cut_short || now.conversation.continuation.is_some() {
            return Ok(());
        }
        let clock = Clock::here();
        let scheduled = waiting.continuation.as_ref().map(|it| clock.moment(it.at));
        let what = match (waiting.cut_short, scheduled) {
            (true, Some(at)) => {
                format!("the interrupted turn will not be continued at {at}: this prompt was answered first")
            }
            (true, None) => {
                "the interrupted turn can no longer be continued: this prompt was answered first".to_owned()
            }
            (false, Some(at)) => {
                format!(
                    "the prompt that was scheduled for {at} will not be sent: this prompt was answered first"
                )
            }
            (false, None) => return Ok(()),
        };
        self.screen.aside(&what)
    }

    /// Takes an event in, and shows it where it belongs to what is followed.
    pub(super) fn event(&mut self, followed: &Followed, start: &Start, own: &mut OwnTurn) -> Outcome {
        let event = &followed.envelope.event;
        let (watches, json) = (start.watches(), self.screen.output.json);
        match event {
            Event::PromptAccepted { turn_id, prompt } => {
                // Another client's may be accepted first, also one with the same words: its turn ends before this one's answer
                // comes.
                let may_be_own = own.id.is_none() || own.has_ended;
                let is_same = |own: &PromptContent| own.to_text() == prompt.to_text();
                let is_own = watches || (may_be_own && start.sends().is_none_or(is_same));
                if !is_own {
                    return Ok(());
                }
                own.id = Some(turn_id.clone());
                own.has_ended = false;
                if json {
                    return Ok(());
                }
                if watches || matches!(start, Start::Since(_)) {
                    self.prompt(&prompt.to_text())?;
                }
                self.screen.spin();
                Ok(())
            }
            Event::Update { turn_id, update } => match watches || (turn_id.is_some() && *turn_id == own.id) {
                true if !json => self.screen.update(update),
                _ => Ok(()),
            },
            Event::TurnEnded { turn } if watches => {
                own.id = None;
                if json {
                    return Ok(());
                }
                self.turn_ended(turn)
            }
            Event::TurnEnded { turn } => {
                if own.id.as_ref() == Some(&turn.turn_id) {
                    own.has_ended = true;
                    own.result = Some(turn.clone());
                }
                Ok(())
            }
            Event::Snapshot { .. } => self.snapshot(event, start, own),
            Event::Updated { conversation } if watches => self.queue(conversation),
            // The continuation was given up before it became a turn.
            Event::Updated { conversation }
                if matches!(start, Start::Continue(_))
                    && own.id.is_none()
                    && conversation.continuation.is_none()
                    && conversation.state == ConversationState::Failed =>
            {
                let why = conversation
                    .failure
                    .as_deref()
                    .unwrap_or("the continuation failed");
                let again = self.advice().command(Call::Continue(""));
                let is_missing = !self.screen.output.in_chat && !Path::new(&conversation.cwd).exists();
                let hint = match is_missing {
                    true => format!("mkdir -p {} && {again}", shell_word(&conversation.cwd)),
                    false => format!("once that is fixed: {again}"),
                };
                Err(Problem::new(Exit::Failed, one_line(why)).hint(hint))
            }
            Event::InterruptRaised { interrupt } if own.id.is_none() && !watches => {
                self.questions_of_others([interrupt])
            }
            Event::InterruptRaised { interrupt } => {
                self.questions.push_back(interrupt.clone());
                match self.questions.len() {
                    1 => self.ask(),
                    _ => Ok(()),
                }
            }
            Event::InterruptResolved { interrupt_id, by, .. } => {
                self.resolved(interrupt_id, by)?;
                // The turn that an answer starts is accepted before its question is resolved.
                if matches!(start, Start::Running) && own.id.is_none() && self.questions.is_empty() {
                    self.was_refused = true;
                    own.has_ended = true;
                }
                Ok(())
            }
            // Of a prompt that waits its end says so: this may be about the turn before it.
            Event::Resumed { resumed } if start.queued_prompt().is_none() => self.resumed(resumed),
            Event::ForeignWriter { upstream_id } => {
                let session = words::short(upstream_id.as_str());
                let what = format!(
                    "another program changed the transcript of session {session}: end one of the two, or answers are lost; \
                     what this session has is in {}",
                    self.advice().command(Call::History)
                );
                self.screen.styled(ATTENTION, &what)
            }
            Event::Rolled {
                from: Some(from),
                to,
                cause: RollCause::Cleared,
                ..
            } => {
                let what = format!(
                    "Started session {}. Go back to {} with: {}",
                    words::short(to.as_str()),
                    words::short(from.as_str()),
                    self.advice().command(Call::Undo)
                );
                self.screen.aside(&what)
            }
            Event::Closed {} if watches => self
                .screen
                .aside("the session was closed; the next prompt reopens it"),
            Event::Deleted {} => {
                own.has_ended = true;
                self.screen.aside("the conversation was deleted")
            }
            event if watches => match change_elsewhere(event, self.id) {
                Some(what) => self.screen.aside(&what),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Takes in how the conversation is now, when this begins to follow it or missed what happened.
    fn snapshot(&mut self, event: &Event, start: &Start, own: &mut OwnTurn) -> Outcome {
        let Event::Snapshot {
            conversation,
            gap,
            running,
            ..
        } = event
        else {
            return Ok(());
        };
        let (watches, json) = (start.watches(), self.screen.output.json);
        let running = running.as_ref();
        let running_id = running.map(|running| &running.turn_id);
        let open = &conversation.interrupts;
        let is_of_others = matches!(start, Start::Running | Start::Since(_));
        // Another client asked for the same first.
        let is_continued = matches!(start, Start::Continue(_))
            && running.is_some_and(|running| words::own_prompt(&running.prompt.to_text()).is_some());
        let follows_running = watches || ((is_of_others || is_continued) && own.id.is_none());
        let is_own = follows_running || (own.id.is_some() && own.id.as_ref() == running_id);
        match &own.id {
            _ if watches => own.id = running_id.cloned(),
            None if follows_running => {
                own.id = running_id.cloned();
                own.has_ended = own.id.is_none() && open.is_empty();
            }
            None => {}
            // The connection was lost and the missed events are gone: a turn that is not running has ended.
            Some(_) => own.has_ended = !is_own,
        }
        self.folder.clone_from(&conversation.cwd);
        if matches!(start, Start::Prompt(_)) && own.id.is_none() {
            let is_limited = conversation.cut_short && conversation.limit.is_some();
            let waits = is_limited || conversation.continuation.is_some();
            // A turn that runs may be what continues it.
            self.waiting = Some(conversation.clone()).filter(|_| waits && running.is_none());
        }
        if *gap && is_own {
            self.screen.aside("some of the output was missed")?;
        }
        if watches {
            let title = one_line(&conversation.title);
            let (id, state) = (words::short_id(conversation.id), words::wire(conversation.state));
            self.screen.aside(&format!("{id} {title} ({state})"))?;
            self.queued = 0;
            self.queue(conversation)?;
            self.shows_last_turn.get_or_insert(running.is_none() && !json);
        }
        match running {
            _ if json => {}
            Some(running) if is_own && (start.method().is_none() || is_continued) => {
                self.prompt(&running.prompt.to_text())?;
                self.screen.spin();
                for update in &running.updates {
                    self.screen.update(update)?;
                }
            }
            Some(_) if !is_own && start.queued_prompt().is_some() => {
                self.screen
                    .aside("another turn is running; this prompt is queued")?;
            }
            None if follows_running && !watches && !open.is_empty() => {
                self.screen
                    .aside("the turn was interrupted; its question is still open")?;
            }
            _ => {}
        }
        self.questions.clear();
        self.reported.clear();
        match is_own {
            true => self.questions.extend(open.iter().cloned()),
            // Those of the own turn are asked again once it is known how that ended.
            false if own.id.is_some() && !json => {}
            false => self.questions_of_others(open)?,
        }
        let place = |question: &Interrupt| self.asked_first.as_ref() != Some(&question.id);
        self.questions.make_contiguous().sort_by_key(place);
        self.ask()
    }

    /// Shows the last turn of a conversation in which none runs, as it was seen when it ran.
    pub(super) async fn last_turn(&mut self) -> Outcome {
        let call = method::History {
            conversation_id: self.id.into(),
            last: Some(SHOWN_MESSAGES),
            r#as: HistoryForm::Updates,
            ..Default::default()
        };
        let daemon = self.daemon();
        // What cannot be read can be followed all the same.
        let page = match self.waited(daemon.call(call)).await {
            Err(left) if self.has_left => return Err(left),
            page => page.ok(),
        };
        let updates = page.and_then(|page| page.updates).unwrap_or_default();
        let Some(turn) = updates.last().map(|update| update.checkpoint_id.clone()) else {
            return Ok(());
        };
        for update in updates.iter().filter(|update| update.checkpoint_id == turn) {
            match self.screen.prompt_of(&update.update) {
                Some(prompt) => self.prompt(&prompt)?,
                None => self.screen.update(&update.update)?,
            }
        }
        self.screen.end_turn()
    }

    /// A turn that is only watched has ended.
    fn turn_ended(&mut self, turn: &TurnResult) -> Outcome {
        self.screen.end_turn()?;
        self.screen.usage_line()?;
        match self.problem_of(turn) {
            Some(problem) => self.screen.styled(ATTENTION, &problem.words()),
            None => Ok(()),
        }
    }

    fn prompt(&mut self, prompt: &str) -> Outcome {
        let prompt = one_line(&spoken(prompt));
        match words::own_prompt(&prompt) {
            Some(own) => self.screen.styled(DIM, &own),
            None => self.screen.styled(STRONG, &format!("> {prompt}")),
        }
    }

    /// Says how many prompts are queued, when that has changed.
    fn queue(&mut self, conversation: &Conversation) -> Outcome {
        let queued = conversation.queue.len();
        if std::mem::replace(&mut self.queued, queued) == queued || queued == 0 {
            return Ok(());
        }
        let prompts = words::count(queued as u64, "prompt is", "prompts are");
        self.screen.aside(&format!("{prompts} queued"))
    }

    /// Says how the session was reopened, when something is missing and was not said yet.
    pub(super) fn resumed(&mut self, resumed: &Resumed) -> Outcome {
        if resumed.fidelity == Fidelity::Full || std::mem::replace(&mut self.said_resumed, true) {
            return Ok(());
        }
        let resumed = self.screen.output.addressed(&words::resumed(resumed));
        self.screen.styled(ATTENTION, &resumed)
    }
}
