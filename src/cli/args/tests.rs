use super::{GROUPS, command};

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

#[test]
fn each_visible_command_is_in_exactly_one_group() {
    let command = command();
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
    visible.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, visible);
}
