/* cmd_completion.c - the command xdit completion, which prints completion scripts for shells, made
 * from the tables of options */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/opt.h"

static const char shells[] = "bash zsh fish";

static int is_a(const xd_option *o, const char *kind)
{
    return o->arg && strncmp(o->arg, kind, strlen(kind)) == 0;
}

/* Prints the beginning of an option's help text, without characters that have a special meaning
 * within a shell's quotes. */
static void put_short(const char *help)
{
    int n = 0;
    for (const char *p = help ? help : ""; *p && !strchr(";(", *p) && n < 60; p++, n++)
        if (*p == ':' || *p == '[' || *p == ']' || *p == '\'' || *p == '\\')
            fputc(' ', stdout);
        else
            fputc(*p, stdout);
}

static void print_names(void)
{
    for (const xd_command *const *c = xd_commands; *c; c++)
        printf("%s%s", c == xd_commands ? "" : " ", (*c)->name);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_flag(void *cookie, const xd_option *o, const char *letter)
{
    (void)cookie;
    (void)letter;
    printf(" --%s", o->name);
}

/* Prints bash code that completes the value of an option: a choice, a directory, a file, or free
 * text. */
static void bash_value(void *cookie, const xd_option *o, const char *letter)
{
    const char *command = cookie;
    if (o->kind == XD_OPT_FLAG)
        return;
    printf("    %s:--%s", command, o->name);
    if (letter)
        printf("|%s:-%s", command, letter);
    if (o->choices)
        printf(") COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", o->choices);
    else if (is_a(o, "DIR"))
        printf(") compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n");
    else if (is_a(o, "FILE"))
        printf(") compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    else
        printf(") compopt +o default; return ;;\n");
}

static void print_bash(void)
{
    printf("# bash completion of xdit, printed by `xdit completion bash`\n_xdit()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags name\n"
           "    COMPREPLY=()\n"
           "    if [ \"$cur\" = = ]; then cur=; elif [ \"$prev\" = = ]; then "
           "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    print_names();
    printf(" help --version' -- \"$cur\"))\n        return\n    fi\n"
           "    case $prev in --*) name=${prev#--} prev=--${name//-/_} ;; esac\n"
           "    case ${COMP_WORDS[1]}:$prev in\n");
    for (const xd_command *const *c = xd_commands; *c; c++)
        xd_opt_each((*c)->help, bash_value, (void *)(*c)->name);
    printf("    completion:completion) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n"
           "    help:help | man:man) COMPREPLY=($(compgen -W '",
           shells);
    print_names();
    printf("' -- \"$cur\")); return ;;\n    esac\n    case ${COMP_WORDS[1]} in\n");
    for (const xd_command *const *c = xd_commands; *c; c++) {
        printf("    %s) flags='--help", (*c)->name);
        xd_opt_each((*c)->help, bash_flag, NULL);
        printf("' ;;\n");
    }
    printf(
        "    esac\n    case $cur in\n"
        "    --*) name=${cur#--}; COMPREPLY=($(compgen -W \"$flags\" -- \"--${name//-/_}\")) ;;\n"
        "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")) ;;\n    esac\n}\n"
        "complete -o default -F _xdit xdit\n");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static void zsh_one(const xd_option *o, const char *dashes, const char *name)
{
    printf("      '*%s%s%s[", dashes, name, o->kind == XD_OPT_FLAG || dashes[1] == 0 ? "" : "=");
    put_short(o->help);
    printf("]");
    if (o->kind != XD_OPT_FLAG && o->choices)
        printf(":%s:(%s)", o->arg ? o->arg : "VALUE", o->choices);
    else if (o->kind != XD_OPT_FLAG)
        printf(":%.*s:%s", (int)strcspn(o->arg ? o->arg : "VALUE", "[:"), o->arg ? o->arg : "VALUE",
               is_a(o, "DIR")    ? "_files -/"
               : is_a(o, "FILE") ? "_files"
                                 : " ");
    printf("' \\\n");
}

static void zsh_flag(void *cookie, const xd_option *o, const char *letter)
{
    (void)cookie;
    zsh_one(o, "--", o->name);
    if (letter)
        zsh_one(o, "-", letter);
}

static void print_zsh(void)
{
    printf("#compdef xdit\n# zsh completion of xdit, printed by `xdit completion zsh`\n_xdit()\n{\n"
           "  local -a commands\n  commands=(\n");
    for (const xd_command *const *c = xd_commands; *c; c++)
        printf("    '%s:%s'\n", (*c)->name, (*c)->summary);
    printf("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
           "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n");
    for (const xd_command *const *c = xd_commands; *c; c++) {
        printf("  %s)\n    _arguments \\\n", (*c)->name);
        xd_opt_each((*c)->help, zsh_flag, NULL);
        if (*c == &xd_cmd_completion)
            printf("      '1:shell:(%s)' \\\n", shells);
        else if (*c == &xd_cmd_man) {
            printf("      '1:command:(");
            print_names();
            printf(")' \\\n");
        }
        printf("      '--help[the options of this command]' '*:file:_files' ;;\n");
    }
    printf("  esac\n}\n_xdit \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_flag(void *cookie, const xd_option *o, const char *letter)
{
    const char *command = cookie;
    printf("complete -c xdit -n '__fish_seen_subcommand_from %s' -l %s", command, o->name);
    if (letter)
        printf(" -s %s", letter);
    if (o->kind != XD_OPT_FLAG && o->choices)
        printf(" -x -a '%s'", o->choices);
    else if (o->kind != XD_OPT_FLAG && is_a(o, "DIR"))
        printf(" -x -a '(__fish_complete_directories)'");
    else if (o->kind != XD_OPT_FLAG)
        printf(is_a(o, "FILE") ? " -r" : " -x");
    printf(" -d '");
    put_short(o->help);
    printf("'\n");
}

static void print_fish(void)
{
    printf("# fish completion of xdit, printed by `xdit completion fish`\n");
    for (const xd_command *const *c = xd_commands; *c; c++)
        printf("complete -c xdit -n __fish_use_subcommand -f -a %s -d '%s'\n", (*c)->name,
               (*c)->summary);
    for (const xd_command *const *c = xd_commands; *c; c++)
        xd_opt_each((*c)->help, fish_flag, (void *)(*c)->name);
    printf("complete -c xdit -n '__fish_seen_subcommand_from completion' -f -a '%s'\n"
           "complete -c xdit -n '__fish_seen_subcommand_from man' -f -a '",
           shells);
    print_names();
    printf("'\n");
}

/* ---- command --------------------------------------------------------------------------------- */

static void print_help(FILE *f)
{
    fputs("Usage: xdit completion bash|zsh|fish\n\n"
          "Prints a script that completes commands, options and their values in this shell.\n"
          "Packages install it; to use it in this session only:\n\n"
          "  source <(xdit completion bash)\n"
          "  source <(xdit completion zsh)\n"
          "  xdit completion fish | source\n",
          f);
}

static int run_command(int argc, char **argv)
{
    xd_err      e = { 0 };
    const char *shell = argc == 1 ? argv[0] : "";
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else if (strcmp(shell, "fish") == 0)
        print_fish();
    else
        return xd_cli_exit(
            xd_fail(&e, XD_EINVAL,
                    "completion needs the name of a shell: bash, zsh or fish%s%.40s%s",
                    argc ? ", not '" : "", argc ? argv[0] : "", argc ? "'" : ""),
            &e);
    return xd_cli_flush();
}

const xd_command xd_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for bash, zsh or fish",
    .run = run_command,
    .help = print_help,
};
